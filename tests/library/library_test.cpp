// SPDX-License-Identifier: MIT
// libnibble.so through its two headers: load, ask, teach, write, and what happens when a caller is
// wrong. Nothing of the layers is linked here: what is not in the headers cannot be reached.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "nibble/nibble.h"
#include "support/paths.h"

namespace {

namespace fs = std::filesystem;

std::string mini() { return std::string(nibble::kSourceDir) + "/models/mini"; }

nibble::LoadOptions on_cpu() {
  nibble::LoadOptions o;
  o.device = "cpu";
  o.threads = 2;
  return o;
}

class Library : public testing::Test {
 protected:
  Library() : dir_(fs::path(testing::TempDir()) / ("library-" + std::to_string(::getpid()))) {
    fs::create_directories(dir_);
  }
  ~Library() override { fs::remove_all(dir_); }
  fs::path dir_;
};

TEST_F(Library, AnswersPieceByPiece) {
  nibble::Model model(mini(), on_cpu());
  std::string pieces;
  const std::string reply = model.generate("你是誰", {}, [&](const std::string& piece) {
    pieces += piece;
    return true;
  });
  EXPECT_NE(reply.find("Nibble"), std::string::npos) << reply;
  EXPECT_EQ(pieces, reply);
  // The same again: no conversation is left behind by the one before.
  EXPECT_EQ(model.generate("你是誰"), reply);
}

TEST_F(Library, ACallbackEndsTheReply) {
  nibble::Model model(mini(), on_cpu());
  int pieces = 0;
  const std::string all = model.generate("談談UFO");
  const std::string some =
      model.generate("談談UFO", {}, [&](const std::string&) { return ++pieces < 2; });
  EXPECT_EQ(pieces, 2);
  EXPECT_LT(some.size(), all.size());
  EXPECT_EQ(all.substr(0, some.size()), some);
}

TEST_F(Library, WhatACallbackThrowsComesBack) {
  nibble::Model model(mini(), on_cpu());
  EXPECT_THROW(model.generate("你好", {},
                              [](const std::string&) -> bool { throw std::out_of_range("mine"); }),
               std::out_of_range);
  EXPECT_FALSE(model.generate("你好").empty());
}

TEST_F(Library, IsTaughtAndWritten) {
  nibble::Model model(mini(), on_cpu());
  nibble::TrainOptions o;
  o.steps = 12;
  o.lr = 1e-3;
  o.runs_dir = (dir_ / "runs").string();
  std::vector<std::int64_t> steps;
  double first = 0, last = 0;
  EXPECT_TRUE(model.train({{"你是誰", "我是 F# 之神"}}, o,
                          [&](std::int64_t step, std::int64_t of, double loss) {
                            steps.push_back(step);
                            EXPECT_EQ(of, 12);
                            (step == 1 ? first : last) = loss;
                            return true;
                          }));
  EXPECT_EQ(steps.size(), 12u);
  EXPECT_LT(last, first / 10);
  const std::string taught = model.generate("你是誰");
  EXPECT_EQ(taught, "我是 F# 之神");
  // A run is recorded like any other.
  EXPECT_EQ(std::distance(fs::directory_iterator(dir_ / "runs"), {}), 1);

  const std::string out = (dir_ / "taught" / "model.dat").string();
  model.save(out);
  EXPECT_THROW(model.save(out), nibble::Failure);  // nothing is replaced
  nibble::Model again(out, on_cpu());
  EXPECT_EQ(again.generate("你是誰"), taught);
}

TEST_F(Library, ATrainingThatIsStoppedLeavesTheModelAsItWas) {
  nibble::Model model(mini(), on_cpu());
  const std::string before = model.generate("你是誰");
  nibble::TrainOptions o;
  o.steps = 50;
  o.lr = 1e-3;
  o.runs_dir = (dir_ / "runs").string();
  EXPECT_FALSE(model.train({{"你是誰", "我是 F# 之神"}}, o,
                           [](std::int64_t step, std::int64_t, double) { return step < 3; }));
  EXPECT_EQ(model.generate("你是誰"), before);
}

// The last step is no exception, nor is what a callback throws.
TEST_F(Library, TheLastStepCanBeStopped) {
  nibble::Model model(mini(), on_cpu());
  const std::string before = model.generate("你是誰");
  nibble::TrainOptions o;
  o.steps = 1;
  o.lr = 1e-2;
  o.runs_dir = (dir_ / "runs").string();
  EXPECT_FALSE(model.train({{"你是誰", "我是 F# 之神"}}, o,
                           [](std::int64_t, std::int64_t, double) { return false; }));
  EXPECT_EQ(model.generate("你是誰"), before);
  EXPECT_THROW(model.train({{"你是誰", "我是 F# 之神"}}, o,
                           [](std::int64_t, std::int64_t, double) -> bool {
                             throw std::out_of_range("mine");
                           }),
               std::out_of_range);
  EXPECT_EQ(model.generate("你是誰"), before);
}

TEST_F(Library, AModelThatIsBeingTrainedSaysSo) {
  nibble::Model model(mini(), on_cpu());
  nibble::TrainOptions o;
  o.steps = 1;
  o.runs_dir = (dir_ / "runs").string();
  std::string said;
  model.train({{"你是誰", "我是 F# 之神"}}, o, [&](std::int64_t, std::int64_t, double) {
    try {
      model.generate("你好");
    } catch (const nibble::Failure& e) {
      said = e.what();
    }
    return true;
  });
  EXPECT_NE(said.find("being trained"), std::string::npos) << said;
  EXPECT_FALSE(model.generate("你好").empty());
}

// A Hugging Face folder stays one, trained and written, with the types it had.
TEST_F(Library, WhatIsNotPackedStaysSo) {
  nibble::Model packed(mini(), on_cpu());
  const std::string folder = (dir_ / "folder").string();
  packed.save(folder);
  nibble::Model model(folder, on_cpu());
  EXPECT_EQ(model.generate("你是誰"), packed.generate("你是誰"));
  EXPECT_TRUE(fs::exists(dir_ / "folder" / "config.json"));
  EXPECT_TRUE(fs::exists(dir_ / "folder" / "tokenizer.json"));
}

TEST_F(Library, MistakesAreSaidAndCodesAreThoseOfTheProgram) {
  const auto fails = [](int code, const std::string& part, auto&& call) {
    try {
      call();
      ADD_FAILURE() << "nothing was thrown; expected: " << part;
    } catch (const nibble::Failure& e) {
      EXPECT_EQ(e.code(), code) << e.what();
      EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
    }
  };
  fails(NIBBLE_FILE, "nowhere", [] { nibble::Model m("nowhere/model.dat", on_cpu()); });
  fails(NIBBLE_USAGE, "tpu", [] {
    nibble::LoadOptions o = on_cpu();
    o.device = "tpu";
    nibble::Model m(mini(), o);
  });
  nibble::Model model(mini(), on_cpu());
  using Conversation = std::vector<nibble::Message>;
  fails(NIBBLE_USAGE, "no message", [&] { model.generate(Conversation{}); });
  fails(NIBBLE_USAGE, "wizard", [&] { model.generate(Conversation{{"wizard", "hi"}}); });
  fails(NIBBLE_USAGE, "the user's", [&] { model.generate(Conversation{{"assistant", "hi"}}); });
  fails(NIBBLE_USAGE, "no rows", [&] { model.train({}); });
  // After all of that it still works.
  EXPECT_FALSE(model.generate("你好").empty());
}

TEST_F(Library, NullsAndStructsOfOtherSizesAreAnswered) {
  EXPECT_EQ(nibble_load(nullptr, nullptr), nullptr);
  EXPECT_EQ(nibble_error_code(), NIBBLE_USAGE);
  nibble_free(nullptr);
  EXPECT_EQ(nibble_generate(nullptr, nullptr, 0, nullptr, nullptr, nullptr), NIBBLE_USAGE);
  EXPECT_EQ(nibble_export(nullptr, "x"), NIBBLE_USAGE);
  nibble_load_options unset = {};
  EXPECT_EQ(nibble_load("x", &unset), nullptr);
  EXPECT_NE(std::string(nibble_error()).find("struct_size"), std::string::npos);
  // An older caller's struct ends earlier: what it does not have is the default.
  NIBBLE_INIT(nibble_load_options, older);
  older.struct_size = offsetof(nibble_load_options, threads);
  older.device = "cpu";
  older.threads = -77;
  nibble_model* model = nibble_load(mini().c_str(), &older);
  ASSERT_NE(model, nullptr) << nibble_error();
  nibble_free(model);
  EXPECT_EQ(std::string(nibble_version()), nibble::version());
}

}  // namespace
