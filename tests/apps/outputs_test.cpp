// SPDX-License-Identifier: MIT
// One rule for every file a command writes: never an input, never an existing one without --force.
#include <sys/wait.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "apps/cli_run.h"
#include "core/durable/file_lock.h"

namespace nibble::test {
namespace {

namespace fs = std::filesystem;

class Outputs : public testing::Test {
 protected:
  void SetUp() override {
    write_toy_directory(dir_.path() / "m");
    replace_file(there_, "mine\n");
    replace_file(dir_.path() / "pairs.tsv", "hello\tyes\n");
  }
  std::string model() const { return (dir_.path() / "m").string(); }
  std::string weights() const { return (dir_.path() / "m" / "model.safetensors").string(); }
  // Commands that write to the file after them.
  std::vector<std::vector<std::string>> commands() const {
    return {{"chat", "--model", model(), "--prompt", "hi", "--max-tokens", "1", "--tee"},
            {"chat", "--model", model(), "--prompt", "hi", "--max-tokens", "1", "--tee-jsonl"},
            {"trace", "--model", model(), "--input-ids", "1,2", "--out"},
            {"bench", "--model", model(), "--prompt-tokens", "2", "--tokens", "1", "--repeat", "1",
             "--warmup", "0", "--json"},
            {"check", "--model", model(), "--finite", "--json"},
            {"profile", "--model", model(), "--threads", "1", "--vram-report"},
            {"train", "--model", model(), "--train-data", (dir_.path() / "pairs.tsv").string(),
             "--export", "false", "--steps", "1", "--runs-dir", (dir_.path() / "runs").string(),
             "--vram-report"},
            {"smoke", "--synthetic", "false", "--model", model(), "--steps-per-epoch", "1",
             "--runs-dir", (dir_.path() / "runs").string(), "--vram-report"}};
  }
  TemporaryDirectory dir_{"outputs"};
  const fs::path there_ = dir_.path() / "there";
};

TEST_F(Outputs, AnExistingFileIsNotTouchedWithoutForce) {
  for (std::vector<std::string> args : commands()) {
    SCOPED_TRACE(args[0]);
    args.push_back(there_.string());
    cli_fails(args, 2, "there exists: choose another name, or use --force");
    EXPECT_EQ(read_text_file(there_), "mine\n");
  }
}

TEST_F(Outputs, AnInputIsNeverWrittenTo) {
  const std::string before = file_bytes(weights());
  for (std::vector<std::string> args : commands()) {
    SCOPED_TRACE(args[0]);
    args.insert(args.end(), {weights(), "--force"});
    cli_fails(args, 2, "is an input");
    EXPECT_TRUE(file_bytes(weights()) == before);
  }
}

TEST_F(Outputs, WithForceItIs) {
  for (std::vector<std::string> args : commands()) {
    SCOPED_TRACE(args[0]);
    replace_file(there_, "mine\n");
    args.insert(args.end(), {there_.string(), "--force"});
    EXPECT_EQ(cli(args).code, 0);
    const std::string now = file_bytes(there_);
    EXPECT_NE(now, "mine\n");
    EXPECT_EQ(now.starts_with("mine\n"), args[0] == "chat") << "which appends";
  }
}

// Two programs that write one model: the second is told, and what is there stays.
TEST_F(Outputs, OneProgramWritesAModel) {
  const fs::path out = fs::canonical(dir_.path()) / "out.dat";
  const std::vector<std::string> args = {"convert", model(), out.string(), "--quant", "nvfp4"};
  {
    const auto other = FileLock::take(lock_beside(out));
    cli_fails(args, 2, "is being written by another run (process ");
  }
  EXPECT_FALSE(fs::exists(out));
  EXPECT_EQ(cli(args).code, 0);
  for (const auto& e : fs::directory_iterator(dir_.path())) {
    EXPECT_FALSE(contains(e.path().filename().string(), ".nibble-")) << e.path();
  }
}

}  // namespace
}  // namespace nibble::test
