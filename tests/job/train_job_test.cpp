// SPDX-License-Identifier: MIT
// A training job without a command line: what it is given, what it tells, how it is stopped.
#include "job/train_job.h"

#include <gtest/gtest.h>

#include "job/toy_job.h"

namespace nibble::test {
namespace {

namespace fs = std::filesystem;

// Writes down what it is told, and asks to stop after a step.
class Witness final : public JobEvents {
 public:
  explicit Witness(int64_t stop_after = 0) : stop_after_(stop_after) {}
  void text(std::string_view lines) override { said += lines; }
  void steps_begin() override { ++loops, in_steps = true; }
  void steps_end() override { in_steps = false; }
  bool stop_requested() override {
    EXPECT_TRUE(in_steps) << "a stop is only heard between the steps";
    return stop_after_ > 0 && int64_t(steps.size()) >= stop_after_;
  }
  void step_done(const StepRecord& s) override { steps.push_back(s.step); }
  void held_out_done(int64_t step, double) override { held_out.push_back(step); }
  void gate_done(int64_t step, const ProbeScores& scores) override {
    gates.push_back(step);
    EXPECT_EQ(scores.all.total, 1);
  }
  void checkpoint_saved(const fs::path& file) override { checkpoints.push_back(file); }
  void model_exported(const fs::path& model) override { models.push_back(model); }

  std::string said;
  std::vector<int64_t> steps, held_out, gates;
  std::vector<fs::path> checkpoints, models;
  int loops = 0;
  bool in_steps = false;

 private:
  int64_t stop_after_;
};

class TrainJobTest : public ToyJobTest {
 protected:
  TrainJob job(const std::string& name) const {
    TrainJob j = toy_job(name);
    j.run.checkpoint_dir = dir_.path() / ("checkpoints-" + name);
    j.output = dir_.path() / (name + ".safetensors");
    return j;
  }
};

TEST_F(TrainJobTest, TellsEveryStepAndTheFileItWrote) {
  TrainJob j = job("whole");
  j.data.eval_data = j.data.train_data;
  j.eval_every = 2;
  j.run.save_every = 2;
  j.config = "command = \"train\"\n";
  Witness witness;
  const JobResult r = run(j, witness);
  EXPECT_EQ(r.end, JobEnd::finished);
  EXPECT_TRUE(r.ok());
  EXPECT_EQ(r.steps, 4);
  EXPECT_EQ(r.output, j.output);
  EXPECT_EQ(r.folder, dir_.path() / "runs" / "whole");
  EXPECT_EQ(witness.steps, (std::vector<int64_t>{1, 2, 3, 4}));
  EXPECT_EQ(witness.held_out, (std::vector<int64_t>{2, 4}));
  EXPECT_EQ(witness.checkpoints.size(), 2u);
  EXPECT_EQ(witness.models, std::vector<fs::path>{j.output});
  EXPECT_EQ(witness.loops, 1);
  EXPECT_FALSE(witness.in_steps);
  EXPECT_TRUE(contains(witness.said, "self-test: loss of the first sample")) << witness.said;
  EXPECT_TRUE(fs::exists(j.output));
  EXPECT_TRUE(fs::exists(dir_.path() / "tokenizer.json")) << "beside the weights";
  EXPECT_EQ(read_text_file(r.folder / "config.toml"), j.config);
}

TEST_F(TrainJobTest, StopsWhenAskedAndGoesOnToTheSameFile) {
  Witness alone;
  const TrainJob whole = job("whole");
  ASSERT_EQ(run(whole, alone).end, JobEnd::finished);

  TrainJob j = job("parts");
  Witness stopped(2);
  const JobResult first = run(j, stopped);
  EXPECT_EQ(first.end, JobEnd::interrupted);
  EXPECT_TRUE(first.ok());
  EXPECT_EQ(first.steps, 2);
  EXPECT_TRUE(first.output.empty());
  EXPECT_EQ(stopped.checkpoints.size(), 1u);
  EXPECT_FALSE(fs::exists(j.output));
  EXPECT_TRUE(contains(stopped.said, "interrupted after step 2 of 4")) << stopped.said;

  j.run.resume = true;
  Witness rest;
  EXPECT_EQ(run(j, rest).end, JobEnd::finished);
  EXPECT_EQ(rest.steps, (std::vector<int64_t>{3, 4}));
  EXPECT_EQ(read_text_file(j.output), read_text_file(whole.output));
}

TEST_F(TrainJobTest, TellsEveryGateFromBeforeTheFirstStep) {
  TrainJob j = job("gates");
  j.gates.probes = dir_.path() / "probes.json";
  j.gates.every = 2;
  replace_file(j.gates.probes, R"({"name": "t", "version": 1, "probes": [
    {"id": "a", "group": "identity", "language": "en", "max_tokens": 4,
     "messages": [{"role": "user", "content": "hi"}], "rules": [{"contains": "yes"}]}]})");
  Witness witness;
  EXPECT_EQ(run(j, witness).end, JobEnd::finished);
  EXPECT_EQ(witness.gates, (std::vector<int64_t>{0, 2, 4}));
}

TEST_F(TrainJobTest, AFailedSelfTestIsAResultAndNoException) {
  TrainJob j = job("failed");
  j.test.prompt = "hello";
  j.test.expect = {"no reply says this"};
  Witness witness;
  const JobResult r = run(j, witness);
  EXPECT_EQ(r.end, JobEnd::failed);
  EXPECT_FALSE(r.ok());
  EXPECT_EQ(r.problems,
            std::vector<std::string>{"the self-test of the exported model failed: the reply lacks "
                                     "'no reply says this': it was cut, more --test-max-tokens "
                                     "may show it"});
  EXPECT_TRUE(fs::exists(j.output));
}

TEST_F(TrainJobTest, WhatDoesNotGoTogetherIsThrownBeforeAnythingIsRead) {
  TrainJob j = job("wrong");
  j.epochs = 2;
  Witness witness;
  EXPECT_THROW(run(j, witness), UsageError);
  EXPECT_FALSE(fs::exists(j.run.folder.runs_dir));
  EXPECT_EQ(witness.loops, 0);
}

}  // namespace
}  // namespace nibble::test
