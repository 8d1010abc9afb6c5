// SPDX-License-Identifier: MIT
// nibble train: every mistake and mishap is answered, and nothing that existed is lost.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "apps/train_support.h"
#include "core/memory_info.h"

namespace nibble::test {
namespace {

namespace fs = std::filesystem;

class TrainErrors : public TrainingTest {
 protected:
  // Training on this data fails, with the file's name and the line in the message.
  void bad_data(const std::string& name, const std::string& text, const std::string& part) {
    const std::string data = write(name, text);
    refused({{"--train-data", data}}, 3, data);
    refused({{"--train-data", data}}, 3, part);
  }
  // Everything below `directory`, with contents.
  static std::map<std::string, std::string> snapshot(const fs::path& directory) {
    std::map<std::string, std::string> files;
    for (const auto& e : fs::recursive_directory_iterator(directory)) {
      if (e.is_regular_file()) files[e.path().string()] = file_bytes(e.path());
    }
    return files;
  }
};

TEST_F(TrainErrors, BadData) {
  bad_data("tab.tsv", "hi\tyes\nno tab here\n", ":2: no tab between prompt and target");
  bad_data("side.tsv", "hi\t\n", ":1: the target is empty");
  bad_data("prompt.tsv", "# x\n\n\tyes\n", ":3: the prompt is empty");
  bad_data("utf8.tsv", "hi\tyes\nhi\t\xff\xfe\n", ":2: invalid UTF-8 at byte ");
  bad_data("zero.tsv", std::string("hi\ty\0s\n", 7), ":1: a zero byte at byte ");
  bad_data("empty.tsv", "", "nothing to learn from: 0 lines");
  bad_data("comments.tsv", "# one\n\n# two\n", "nothing to learn from: 3 lines");
  bad_data("json.jsonl", "{\"prompt\":\"a\",\"target\":\"b\"}\n{\"prompt\":\"a\"\n",
           ":2: not valid JSON");
  replace_file(file("keys.jsonl"), "{\"prompt\":\"a\",\"target\":\"b\",\"id\":1}\n");
  refused({{"--train-data", file("keys.jsonl")}, {"--strict-data", "true"}}, 3,
          "keys.jsonl:1: \"id\" says nothing here");
  refused({{"--tensorboard", file("keys.jsonl")}}, 2, "this is a file");
  bad_data("text.jsonl", "{\"text\":\"once\"}\n", "is for pretraining");
  const std::string wide = "hi\t" + std::string(70, 'a') + "\n";
  bad_data("wide.tsv", wide, ":1: the response has 71 tokens and does not fit the window of 64");
  refused({{"--train-data", file("none.tsv")}}, 3, file("none.tsv"));
  refused({{"--train-data", kLeaveOut}}, 2, "nothing to train on");
  refused({{"--eval-data", file("tab.tsv")}}, 3, "no tab");
  EXPECT_FALSE(fs::exists(file("runs"))) << "nothing was begun";
}

TEST_F(TrainErrors, BadLinesMayBeSkipped) {
  const std::string some =
      write("some.tsv", "no tab\nhello\tgood day\nhi\t\nwho are you\tnibble\n");
  refused({{"--train-data", some}}, 3, ":1: no tab");
  const Options skip = {{"--train-data", some}, {"--skip-bad-lines", "true"}};
  EXPECT_TRUE(exported(skip) == exported({{"--train-data", write("good.tsv",
                                                                 "hello\tgood day\n"
                                                                 "who are you\tnibble\n")}}));
  Options loud = skip;
  loud["--export"] = "false";
  const std::string log = cli_log(train_arguments(loud));
  EXPECT_TRUE(contains(log, "2 of its 4 lines cannot be used")) << log;
  EXPECT_TRUE(contains(log, "skipped: " + some + ":3: ")) << log;
  const std::string none = write("none.tsv", "no tab\n");
  refused({{"--train-data", none}, {"--skip-bad-lines", "true"}}, 3,
          "none of them usable (1 were bad)");
}

TEST_F(TrainErrors, LongResponsesMayBeCut) {
  const std::string wide = write("wide.tsv", "hi\t" + std::string(70, 'a') + "\n");
  const Options cut = {{"--train-data", wide}, {"--truncate", "true"}};
  EXPECT_EQ(column<int64_t>("response_tokens", cut)[0], 64);
  EXPECT_EQ(column<int64_t>("tokens", cut)[0], 64);
}

TEST_F(TrainErrors, InputsAreNeverWrittenTo) {
  fs::copy(model(), file("m"), fs::copy_options::recursive);
  fs::create_directories(file("d"));
  for (const auto& e : fs::directory_iterator(fs::path(dat()).parent_path())) {
    fs::copy(e.path(), fs::path(file("d")) / e.path().filename());
  }
  write("pairs.tsv", kPairs);
  fs::create_directory_symlink(file("m"), file("link"));
  fs::create_symlink(file("d/toy.dat"), file("link.dat"));
  fs::create_hard_link(file("d/toy.dat"), file("hard.dat"));
  fs::create_symlink(file("pairs.tsv"), file("data.dat"));
  const auto before = snapshot(dir_.path());
  const auto try_over = [&](const std::string& model, const std::string& out) {
    SCOPED_TRACE(out);
    refused({{"--model", file(model)},
             {"--config", file("m/config.json")},
             {"--tokenizer", file("m/tokenizer.json")},
             {"--train-data", file("pairs.tsv")},
             {"--output", file(out)},
             {"--force", "true"}},
            2, "choose another name");
  };
  try_over("m", "m");
  try_over("m", "link");
  try_over("m", "m/.");
  try_over("m/model.safetensors", "m/model.safetensors");
  try_over("m", "m/model.safetensors");
  try_over("m", "link/model.safetensors");
  try_over("d/toy.dat", "d/toy.dat");
  try_over("d/toy.dat", "link.dat");
  try_over("d/toy.dat", "hard.dat");
  try_over("link.dat", "d/toy.dat");
  try_over("m", "data.dat");  // the training data
  EXPECT_TRUE(snapshot(dir_.path()) == before);
}

// Reports are outputs like any other.
TEST_F(TrainErrors, InputsAreNotReplacedByTheMemoryReport) {
  fs::copy(model(), file("m"), fs::copy_options::recursive);
  fs::copy(pairs(), file("pairs.tsv"));
  fs::copy(pairs(), file("eval.tsv"));
  write("probes.json",
        R"({"name":"p","version":1,"probes":[{"id":"a","group":"g","language":"en",)"
        R"("messages":[{"role":"user","content":"hi"}],"rules":[{"stops":true}]}]})");
  const Options given = {{"--model", file("m")},
                         {"--train-data", file("pairs.tsv")},
                         {"--eval-data", file("eval.tsv")},
                         {"--probes", file("probes.json")}};
  const auto before = snapshot(dir_.path());
  fs::create_symlink("m/model.safetensors", file("link.json"));
  for (const char* name : {"m/model.safetensors", "m/config.json", "m/tokenizer.json", "link.json",
                           "pairs.tsv", "eval.tsv", "probes.json"}) {
    Options over = given;
    over["--vram-report"] = file(name);
    refused(over, 2, "is an input");
  }
  fs::remove(file("link.json"));
  EXPECT_TRUE(snapshot(dir_.path()) == before) << "nothing was begun";
  Options both = given;
  both["--output"] = file("new/out.dat");
  both["--vram-report"] = file("new/../new/out.dat");
  refused(both, 2, "--output and --vram-report are the same file");
  EXPECT_TRUE(snapshot(dir_.path()) == before);
  // Shards have any name.
  nlohmann::json index = {{"weight_map", nlohmann::json::object()}};
  const auto source = open_tensor_source(file("m"));
  for (const TensorInfo& t : source->tensors()) {
    index["weight_map"][t.name] = "part-1.safetensors";
  }
  fs::rename(file("m/model.safetensors"), file("m/part-1.safetensors"));
  write("m/model.safetensors.index.json", index.dump());
  const auto sharded = snapshot(dir_.path());
  for (const char* model : {"m", "m/model.safetensors.index.json"}) {
    for (const char* name : {"m/part-1.safetensors", "m/model.safetensors.index.json"}) {
      Options over = given;
      over["--model"] = file(model);
      over["--vram-report"] = file(name);
      refused(over, 2, "is an input");
    }
  }
  EXPECT_TRUE(snapshot(dir_.path()) == sharded);
}

TEST_F(TrainErrors, OutputsThatExistOrCannotBe) {
  write("there.dat", "something");
  fs::create_directories(file("full"));
  write("full/notes.txt", "something");
  const auto before = snapshot(dir_.path());
  refused({{"--output", file("there.dat")}}, 2, "exists: choose another name, or use --force");
  refused({{"--output", file("full")}}, 2, "is not empty: choose another name, or use --force");
  refused({{"--output", file("full/notes.txt")}}, 2, "nibble writes no '.txt' files");
  fs::create_directories(file("dir.dat"));
  refused({{"--output", file("dir.dat")}}, 2, "is a directory, and the output is a file");
  // Known before the first step, and no folder of a run is made for it.
  refused({{"--output", file("there.dat/below/model.dat")}}, 3, "there.dat");
  refused({{"--output", "/proc/nibble/model.dat"}}, 3, "/proc");
  EXPECT_TRUE(snapshot(dir_.path()) == before);
  EXPECT_FALSE(fs::exists(file("runs")));
  // Where the run itself is recorded.
  refused({{"--runs-dir", file("there.dat/runs")}}, 3, "there.dat/runs");
  refused({{"--runs-dir", "/proc/nibble"}}, 3, "/proc/nibble");
  // Before the first step, although the first save would come later.
  refused({{"--checkpoint-dir", file("there.dat/c")}, {"--save-every-steps", "2"}}, 3,
          "checkpoints cannot be kept in " + file("there.dat/c"));
  EXPECT_FALSE(fs::exists(file("runs"))) << "no folder of a run for that, either";
}

TEST_F(TrainErrors, ReadOnlyDirectories) {
  // To root only what is no real directory is read-only.
  const bool root = ::geteuid() == 0;
  const std::string place = root ? "/proc/sys" : file("locked");
  if (!root) {
    fs::create_directories(place);
    fs::permissions(place, fs::perms::owner_read | fs::perms::owner_exec);
  }
  refused({{"--output", place + "/model.dat"}}, 3, place);
  refused({{"--output", place + "/model"}}, 3, place);
  refused({{"--runs-dir", place + "/runs"}}, 3, place);
  if (root) return;
  fs::permissions(place, fs::perms::owner_all);
  EXPECT_TRUE(fs::is_empty(place));
}

// The disk fills up when the model is to be written (first the checkpoint that stands before an
// export): what was there before still is.
TEST_F(TrainErrors, FullDiskAtTheExport) {
  const std::string out = file("out");
  trained({{"--output", out}});
  const auto before = snapshot(out);
  const Options again = {{"--output", out}, {"--force", "true"}, {"--steps", "3"}};
  const auto size = fs::file_size(fs::path(out) / "model.safetensors");
  const CliResult full = Child(dir_.path(), train_arguments(again), size / 2).wait();
  EXPECT_EQ(full.code, 3) << full.err;
  EXPECT_TRUE(contains(full.err, "nibble: error: cannot write " + file("runs/run/checkpoints/")))
      << full.err;
  EXPECT_TRUE(snapshot(out) == before);
  const auto status = nlohmann::json::parse(read_text_file(file("runs/run/status.json")));
  EXPECT_EQ(status["state"], "failed");
  // A device that is always full.
  fs::create_symlink("/dev/full", file("full.dat"));
  refused({{"--output", file("full.dat")}, {"--force", "true"}}, 3, "No space left on device");
  trained(again);
  EXPECT_FALSE(snapshot(out) == before);
}

// Little more than a full disk for the record of the run: the training is worth more.
TEST_F(TrainErrors, AFullDiskForTheRecordIsAWarning) {
  const std::string usual = exported({});
  fs::create_directories(file("runs"));
  const CliResult r =
      Child(dir_.path(), train_arguments({{"--vram-report", "/dev/full"}, {"--run-name", "full"}}))
          .wait();
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_TRUE(contains(r.err, "warning: the record of this run is not whole")) << r.err;
  EXPECT_TRUE(file_bytes(file("runs/full/model/model.safetensors")) == usual);
}

TEST_F(TrainErrors, TokenizerThatDoesNotFit) {
  Config small = toy_chat_config();
  small.V = 264;  // fewer rows than the tokenizer has tokens
  write_toy_directory(dir_.path() / "small", small);
  refused({{"--model", file("small")}}, 3, "264");
  write("chatless.json", [] {
    auto t = mini_tokenizer();
    t["added_tokens"] = Json::array();
    return t.dump();
  }());
  refused({{"--tokenizer", file("chatless.json")}}, 2, "the tokenizer has no <|im_start|>");
  fs::create_directories(file("bare"));
  fs::copy(fs::path(model()) / "model.safetensors", file("bare/model.safetensors"));
  refused({{"--model", file("bare")}}, 3, "config.json");
  fs::copy(fs::path(model()) / "config.json", file("bare/config.json"));
  refused({{"--model", file("bare")}}, 3, "no tokenizer.json beside the weights");
}

// Broken weights: named before a step is taken, in every mode.
TEST_F(TrainErrors, BrokenWeights) {
  fs::copy(model(), file("broken"));
  const auto weights = fs::path(file("broken")) / "model.safetensors";
  std::string bytes = file_bytes(weights);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(bytes.data() + open_tensor_source(weights)->at("model.norm.weight").file_offset, &nan,
              sizeof nan);
  replace_file(weights, bytes);
  for (const char* mode : {"resident", "release"}) {
    refused({{"--model", file("broken")}, {"--memory-mode", mode}, {"--run-name", mode}}, 3,
            "tensor 'model.norm.weight' holds NaN or an infinity");
    EXPECT_FALSE(fs::exists(dir_.path() / "runs" / mode / "model"));
  }
}

TEST_F(TrainErrors, TooLittleMemory) {
  // A batch of a million samples; nothing of it is ever touched.
  refused({{"--batch-size", "1000000"}}, 4,
          "no memory mode fits; a smaller --batch-size or --seq-len needs less");
  refused({{"--batch-size", "1000000"}}, 4, "activations");  // the arenas
  // Half a MB a sample, or half of that recomputing: what fits is named.
  const std::string batch = std::to_string(system_memory().available_bytes / 400000);
  refused({{"--batch-size", batch}, {"--memory-mode", "resident"}, {"--recompute", "none"}}, 4,
          "and would fit");
  EXPECT_FALSE(fs::exists(file("runs"))) << "nothing was begun";
}

TEST_F(TrainErrors, MistakesAreAnswered) {
  refused({{"--model", "/no/such/model"}}, 3, "/no/such/model");
  refused({{"--batch-size", "0"}}, 2, "--batch-size");
  refused({{"--accumulate", "many"}}, 2, "--accumulate");
  refused({{"--grad-clip", "-1"}}, 2, "--grad-clip");
  refused({{"--threads", "-1"}}, 2, "--threads");
  refused({{"--learning-rate", "1"}}, 2, "--learning-rate");
  refused({{"--log-every", "0"}}, 2, "--log-every");
  refused({{"--sample-index", "1"}}, 2, "--sample-index");
  refused({{"--temp", "1"}}, 2, "--temp");
}

}  // namespace
}  // namespace nibble::test
