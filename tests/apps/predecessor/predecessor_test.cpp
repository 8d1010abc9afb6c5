// SPDX-License-Identifier: MIT
// The predecessor's users: their command lines, a model for all commands, the stages, the diary,
// and talking to a run that goes on.
#include <sys/stat.h>

#include <cstdlib>
#include <sstream>

#include "apps/command.h"
#include "apps/options/legacy_flags.h"
#include "apps/train_support.h"
#include "core/durable/file_lock.h"
#include "runlog/diary/run_notes.h"
#include "runlog/run_folder.h"
#include "runlog/run_recorder.h"

namespace nibble::test {
namespace {

namespace fs = std::filesystem;

// By its path: the tests work in folders of their own, far from where nibble looks for it.
const std::string kMini = (fs::path(kSourceDir) / "models/mini").string();

class Variable {
 public:
  Variable(std::string name, const std::string& value) : name_(std::move(name)) {
    if (const char* old = std::getenv(name_.c_str())) old_ = old;
    ::setenv(name_.c_str(), value.c_str(), 1);
  }
  ~Variable() {
    if (old_) {
      ::setenv(name_.c_str(), old_->c_str(), 1);
    } else {
      ::unsetenv(name_.c_str());
    }
  }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  std::string name_;
  std::optional<std::string> old_;
};

void replace_all(std::string& text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
}

// Works in a folder of its own: lines that name no --runs-dir leave their runs there.
class Predecessor : public testing::Test {
 protected:
  void SetUp() override {
    before_ = fs::current_path();
    fs::create_directories(dir_.path() / "work");
    fs::current_path(dir_.path() / "work");
  }
  void TearDown() override { fs::current_path(before_); }
  std::string file(const std::string& name) const { return dir_.file(name); }
  std::string write(const std::string& name, const std::string& text) const {
    fs::create_directories((dir_.path() / name).parent_path());
    replace_file(dir_.path() / name, text);
    return file(name);
  }
  std::string pairs() const {
    return write("pairs.tsv", "hello\tgood day\nwho are you\tnibble\nhi\tyes\n");
  }
  CliResult train(Options given) const {
    return cli(arguments("train",
                         {{"--model", kMini},
                          {"--train-data", pairs()},
                          {"--steps", "2"},
                          {"--lr", "1e-3"},
                          {"--self-test", "false"},
                          {"--runs-dir", file("runs")},
                          {"--run-name", "r"}},
                         given));
  }

  TemporaryDirectory dir_{"predecessor"};
  fs::path before_;
};

TEST_F(Predecessor, EveryLineRuns) {
  const fs::path model = dir_.path() / "model";
  fs::create_directories(model);
  for (const char* name : {"config.json", "tokenizer.json", "mini.dat"}) {
    fs::copy_file(fs::path(kSourceDir) / "models/mini" / name,
                  model / (std::string(name) == "mini.dat" ? "mini-nvfp4.dat" : name));
  }
  cli_ok({"convert", (model / "mini-nvfp4.dat").string(), file("hf"), "--quant", "none"});
  write("data/train-inputs.txt", "One sample a line.\n\nAnother one, a little longer.\n");
  write("data/whoami.tsv",
        "# format: prompt<TAB>target\n你是誰\t我是 F# 之神\n談談UFO\t我不知道\n");
  write("data/curriculum-with-header.tsv", "prompt\ttarget\n你是誰\t我是 F# 之神\n");
  write("bin/nvidia-smi",
        "#!/bin/sh\ncase \"$1\" in --query-compute-apps=*) ;; --query-gpu=*) echo 1;; esac\n");
  ::chmod(file("bin/nvidia-smi").c_str(), 0755);
  const Variable path("PATH", file("bin") + ":" + std::getenv("PATH"));
  fs::create_directories(dir_.path() / "out");
  std::istringstream lines(
      read_text_file(fs::path(kSourceDir) / "tests/apps/predecessor/lines.txt"));
  int64_t tried = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line[0] == '#') continue;
    int code = 0;
    if (line.starts_with("1 ")) code = 1, line.erase(0, 2);
    replace_all(line, "@MODEL", model.string());
    replace_all(line, "@DATA", file("data"));
    replace_all(line, "@DAT", (model / "mini-nvfp4.dat").string());
    replace_all(line, "@OUT", file("out"));
    replace_all(line, "@HF", file("hf"));
    std::istringstream split(line);
    std::vector<std::string> words;
    for (std::string word; split >> word;) words.push_back(word);
    // The guard starts this program anew: that is a process of its own.
    CliResult r{0, "", ""};
    if (words[0].starts_with("run-script-with-guard")) {
      r = Child(dir_.path(), words).wait();
    } else {
      r = cli(words);
    }
    EXPECT_EQ(r.code, code) << line << "\n" << r.err;
    ++tried;
  }
  EXPECT_GE(tried, 45);
}

TEST_F(Predecessor, StopHereFalseAsksTwoMore) {
  const std::vector<std::string> line = {
      "chat", "--script", "predecessor", "--model", kMini, "--max-tokens", "1"};
  EXPECT_FALSE(contains(cli_ok(line), "\n[8] "));
  auto more = line;
  more.insert(more.end(), {"--stop-here", "false"});
  const std::string out = cli_ok(more);
  EXPECT_TRUE(contains(out, "\n[9] 請把我上一個問句原封不動地重複一次\n")) << out;
}

TEST_F(Predecessor, AFlagThatIsNotNeededIsSaidAndTheLineGoesOn) {
  testing::internal::CaptureStderr();
  const CliResult r =
      cli({"check", "--replies", "--mode", "bridge", "--model", kMini, "--max-tokens", "2"});
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_TRUE(contains(log, "warning: --mode is not needed by check: there is one model")) << log;
  // In a command whose predecessor never took it, it is still a mistake.
  cli_fails({"convert", "--mode", "bridge"}, 2, "--mode");
}

TEST_F(Predecessor, AsManyLayersAsThereAreIsEverything) {
  EXPECT_EQ(train({{"--train-last-layers", "36"}, {"--output", file("all.dat")}}).code, 0);
  EXPECT_EQ(train({{"--output", file("plain.dat")}, {"--run-name", "p"}}).code, 0);
  EXPECT_TRUE(file_bytes(file("all.dat")) == file_bytes(file("plain.dat")));
}

TEST_F(Predecessor, PathIsTheFolderOfTheModel) {
  const auto reply = [](const std::string& flag) {
    return cli_ok({"generate", flag, kMini, "--prompt", "hi", "--max-tokens", "4"});
  };
  EXPECT_EQ(reply("--path"), reply("--model"));
}

// Its checkpoints were in ./checkpoints where nothing else was said.
TEST_F(Predecessor, ResumeLooksIntoCheckpoints) {
  const std::vector<std::string> line = {"smoke", "--resume",          "true", "--device",
                                         "cpu",   "--steps-per-epoch", "2",    "--in-features",
                                         "64",    "--out-features",    "64"};
  cli_ok(line);
  EXPECT_TRUE(fs::exists("checkpoints/checkpoint-00000002.safetensors"));
  EXPECT_TRUE(contains(cli_ok(line), "nothing was trained"));
}

TEST_F(Predecessor, ADefaultModel) {
  const std::vector<std::string> line = {"generate", "--prompt", "hi", "--max-tokens", "2"};
  const Variable home("XDG_CONFIG_HOME", file("config"));
  cli_fails(line, 2, "NIBBLE_MODEL");
  const std::string expected =
      cli_ok({"generate", "--model", kMini, "--prompt", "hi", "--max-tokens", "2"});
  write("config/nibble/config.toml", "model = \"" + kMini + "\"\nthreads = 1\n");
  EXPECT_EQ(cli_ok(line), expected);
  EXPECT_TRUE(contains(cli_ok({"generate", "--print-config"}), "threads = 1\n"));
  {
    const Variable model("NIBBLE_MODEL", "nowhere.dat");
    cli_fails(line, 3, "nowhere.dat");
    cli_ok({"generate", "--model", kMini, "--prompt", "hi", "--max-tokens", "2"});
  }
  write("config/nibble/config.toml", "modle = \"mini\"\n");
  cli_fails(line, 2, "config.toml: unknown option --modle");
}

TEST_F(Predecessor, TheStagesRun) {
  fs::create_directories("examples");
  fs::create_directory_symlink(fs::path(kSourceDir) / "examples/stages", "examples/stages");
  // Those others begin with come first.
  for (const char* stage : {"a", "b", "baseline", "c", "d", "e", "g", "h", "i", "j", "k", "l"}) {
    const std::string config = std::string("examples/stages/") + stage + ".toml";
    std::vector<std::string> words = {"train", "--run-config", config, "--steps", "1"};
    if (contains(read_text_file(config), "\nmodel = \"mini\"\n")) {
      words.insert(words.end(), {"--model", kMini});
    }
    const CliResult r = cli(words);
    EXPECT_EQ(r.code, 0) << stage << ": " << r.err << r.out;
    EXPECT_TRUE(fs::exists(std::string("stages/") + stage + ".dat")) << stage;
  }
  const std::string inventory = cli_ok({"runs", "inventory"});
  EXPECT_TRUE(contains(inventory, "stages/c.dat")) << inventory;
}

TEST_F(Predecessor, ACheckpointIsTheModelItsRunWouldExport) {
  const std::string out = file("out/o.dat"), ck = file("ck");
  const CliResult r = train({{"--save-every-steps", "1"},
                             {"--checkpoint-dir", ck},
                             {"--keep-checkpoints", "0"},
                             {"--output", out}});
  ASSERT_EQ(r.code, 0) << r.err;
  cli_ok({"convert", ck, file("from-ck/c.dat"), "--quant", "nvfp4"});
  EXPECT_TRUE(file_bytes(out) == file_bytes(file("from-ck/c.dat")));
  const auto reply = [&](const std::string& model) {
    return cli_ok({"generate", "--model", model, "--prompt", "who are you", "--max-tokens", "8",
                   "--print-ids"});
  };
  EXPECT_EQ(reply(ck), reply(out));
  EXPECT_EQ(reply(ck + "/checkpoint-00000002.safetensors"), reply(out));
  const auto logits = [&](const std::string& model, const std::string& to) {
    cli_ok({"trace", "--model", model, "--input-ids", "5,6,7", "--out", to});
    return file_bytes(to);
  };
  EXPECT_TRUE(logits(ck, file("a.safetensors")) == logits(out, file("b.safetensors")));
  EXPECT_EQ(cli({"check", "--model", ck, "--finite"}).code, 0);
  EXPECT_EQ(cli({"chat", "--model", ck, "--max-tokens", "2"}, "hi\n").code, 0);
  // The newest that is sound.
  write("ck/checkpoint-00000009.safetensors", "not a checkpoint");
  EXPECT_EQ(reply(ck), reply(out));
}

TEST_F(Predecessor, ARunThatGoesOnCanBeTried) {
  ASSERT_EQ(train({{"--save-every-steps", "1"}, {"--export", "false"}}).code, 0);
  const std::string expected = cli_ok({"generate", "--model", file("runs/r/checkpoints"),
                                       "--prompt", "hello", "--max-tokens", "4"});
  const FileLock lock = *FileLock::take(lock_in(dir_.path() / "runs/r"));  // as a run has it
  EXPECT_EQ(cli_ok({"runs", "try", "r", "--prompt", "hello", "--max-tokens", "4", "--runs-dir",
                    file("runs")}),
            expected);
  cli_fails({"runs", "try", "r", "--runs-dir", file("runs")}, 2, "--prompt");
}

TEST_F(Predecessor, TheDiary) {
  ASSERT_EQ(
      train({{"--note", "does a *rate* of 1e-3 hold?"}, {"--output", file("w/one.dat")}}).code, 0);
  const auto append = [&] {
    return cli_ok({"runs", "export", "--append", file("diary.md"), "--runs-dir", file("runs")});
  };
  EXPECT_TRUE(contains(append(), "1 entry added"));
  const std::string first = file_bytes(file("diary.md"));
  for (const char* part : {"# Diary\n", "## r (", "**Idea**\n", "does a \\*rate\\* of 1e-3 hold?",
                           "**Method**\n", "pairs.tsv", "**Result**\n", "- state: finished"}) {
    EXPECT_TRUE(contains(first, part)) << part << " in\n" << first;
  }
  EXPECT_TRUE(contains(append(), "0 entries added"));
  EXPECT_EQ(file_bytes(file("diary.md")), first);
  cli_ok({"runs", "note", "r", "greets politely", "--good-for", "--runs-dir", file("runs")});
  EXPECT_TRUE(contains(append(), "1 entry added"));
  EXPECT_TRUE(contains(append(), "0 entries added"));
  const std::string grown = file_bytes(file("diary.md"));
  EXPECT_TRUE(grown.starts_with(first) && contains(grown, "greets politely")) << grown;
  EXPECT_TRUE(
      contains(cli_ok({"runs", "show", "r", "--runs-dir", file("runs")}), "greets politely"));
  const auto rows =
      nlohmann::json::parse(cli_ok({"runs", "inventory", "--json", "--runs-dir", file("runs")}));
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0]["what"], "given");
  EXPECT_EQ(rows[1]["good_for"], "greets politely");
  EXPECT_EQ(rows[1]["where"], "there");
  EXPECT_TRUE(contains(rows[1]["made_from"].get<std::string>(), "mini.dat"));
}

TEST_F(Predecessor, PruneMovesTheWeightsOfARunThatFailed) {
  // A self-test that fails: the file is written and of no use.
  const Options fails = {{"--self-test", "true"}, {"--test-expect", "never said"}};
  Options bad = fails;
  bad["--output"] = file("w/bad.dat");
  EXPECT_EQ(train(bad).code, 1);
  Options changed = fails;
  changed["--output"] = file("w2/changed.dat");
  changed["--run-name"] = "changed";
  EXPECT_EQ(train(changed).code, 1);
  write("w2/changed.dat", "something else");
  EXPECT_EQ(train({{"--output", file("w3/good.dat")}, {"--run-name", "good"}}).code, 0);
  const std::vector<std::string> line = {"runs", "prune", "--failed", "--runs-dir", file("runs")};
  EXPECT_TRUE(contains(cli_ok(line), "bad.dat (weights of r)"));
  EXPECT_TRUE(fs::exists(file("w/bad.dat")));
  auto yes = line;
  yes.insert(yes.end(), {"--yes", "--append", file("diary.md")});
  const std::string bytes = file_bytes(file("w/bad.dat")), out = cli_ok(yes);
  EXPECT_FALSE(fs::exists(file("w/bad.dat")));
  EXPECT_TRUE(fs::exists(file("w2/changed.dat")) && fs::exists(file("w3/good.dat")));
  EXPECT_TRUE(contains(out, "changed.dat stays: ")) << out;
  fs::path trash;
  for (const auto& entry : fs::directory_iterator(file("runs/.trash"))) trash = entry.path();
  EXPECT_TRUE(file_bytes(trash / "weights-of-r/bad.dat") == bytes);
  EXPECT_TRUE(contains(out, (trash / "weights-of-r/bad.dat").string())) << out;
  const std::vector<RunNote> notes = read_notes(trash / "r");
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_TRUE(contains(notes[0].text, "bad.dat"));
  const std::string diary = file_bytes(file("diary.md"));
  EXPECT_TRUE(contains(diary, "## r (") && contains(diary, "### Pruned: weights")) << diary;
}

}  // namespace
}  // namespace nibble::test
