// SPDX-License-Identifier: MIT
#include "runtime/output_files.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "core/error.h"
#include "core/file.h"
#include "runtime/staged_output.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;

std::string config(int64_t width) {
  return "{\"model_type\": \"qwen3\", \"hidden_size\": " + std::to_string(width) +
         ", \"num_hidden_layers\": 1, \"num_attention_heads\": 2, \"num_key_value_heads\": 1, "
         "\"head_dim\": 16, \"intermediate_size\": 64, \"vocab_size\": 32, \"rms_norm_eps\": 1e-6, "
         "\"rope_theta\": 10000, \"max_position_embeddings\": 64, \"tie_word_embeddings\": true}";
}

// Weights that were written beside another model's config.json could not be opened again: the
// export that follows hours of training must not begin there.
TEST(OutputFiles, AFolderOfAnotherModelIsRefused) {
  const fs::path root = fs::path(testing::TempDir()) / ("other-" + std::to_string(getpid()));
  const fs::path ours = root / "ours", theirs = root / "theirs", empty = root / "empty";
  for (const fs::path& d : {ours, theirs, empty}) fs::create_directories(d);
  replace_file(ours / "config.json", config(32));
  replace_file(theirs / "config.json", config(48));
  const fs::path mine = root / "config.json";
  replace_file(mine, config(32));
  EXPECT_THROW(refuse_other_model(mine, theirs, Overwrite::refuse), UsageError);
  refuse_other_model(mine, theirs, Overwrite::allow);
  refuse_other_model(mine, ours, Overwrite::refuse);
  refuse_other_model(mine, empty, Overwrite::refuse);
  refuse_other_model(theirs / "config.json", theirs, Overwrite::refuse);
  fs::remove_all(root);
}

// A folder of this test alone, and the names in one of its folders.
class Staged : public testing::Test {
 protected:
  Staged() { fs::create_directories(root_); }
  ~Staged() override { fs::remove_all(root_); }
  static std::set<std::string> names(const fs::path& folder) {
    std::set<std::string> found;
    for (const auto& e : fs::directory_iterator(folder)) found.insert(e.path().filename());
    return found;
  }
  static void fill(StagedOutput& s, const std::string& weights) {
    replace_file(s.weights() / "model.safetensors", weights);
    s.companion("config.json", "new config", Overwrite::allow);
  }
  fs::path root_ = fs::path(testing::TempDir()) / ("staged-" + std::to_string(getpid()));
};

TEST_F(Staged, ADirectoryAppearsAsAWholeOrNotAtAll) {
  const fs::path out = root_ / "deep" / "model";
  {
    StagedOutput s(out, Container::directory, Overwrite::refuse);
    fill(s, "half");
    EXPECT_FALSE(fs::exists(out));
  }
  EXPECT_TRUE(names(out.parent_path()).empty()) << "what was not published goes";
  StagedOutput s(out, Container::directory, Overwrite::refuse);
  fill(s, "whole");
  s.publish();
  EXPECT_EQ(names(out), (std::set<std::string>{"config.json", "model.safetensors"}));
}

TEST_F(Staged, WhatAppearedMeanwhileIsKept) {
  StagedOutput a(root_ / "a", Container::directory, Overwrite::refuse);
  fill(a, "later");
  fs::create_directories(root_ / "a");
  replace_file(root_ / "a" / "model.safetensors", "earlier");
  EXPECT_THROW(a.publish(), FormatError);
  EXPECT_EQ(read_text_file(root_ / "a" / "model.safetensors"), "earlier");

  StagedOutput b(root_ / "b.dat", Container::dat, Overwrite::refuse);
  replace_file(b.weights(), "later");
  replace_file(root_ / "b.dat", "earlier");
  EXPECT_THROW(b.publish(), FormatError);
  EXPECT_EQ(read_text_file(root_ / "b.dat"), "earlier");
}

TEST_F(Staged, AModelIsReplacedAsAWholeAndItsOtherFilesStay) {
  const fs::path out = root_ / "model";
  fs::create_directories(out);
  replace_file(out / "model-00001-of-00001.safetensors", "old");
  replace_file(out / kShardIndex, "old");
  replace_file(out / "tokenizer.json", "its tokenizer");
  replace_file(out / "config.json", "old config");
  fs::permissions(out / "config.json", fs::perms::owner_read | fs::perms::owner_write);
  {
    StagedOutput s(out, Container::directory, Overwrite::allow);
    fill(s, "new");
    s.publish();
  }
  EXPECT_EQ(names(out),
            (std::set<std::string>{"config.json", "model.safetensors", "tokenizer.json"}));
  EXPECT_EQ(read_text_file(out / "config.json"), "new config");
  EXPECT_EQ(fs::status(out / "config.json").permissions(),
            fs::perms::owner_read | fs::perms::owner_write);
  EXPECT_EQ(names(root_), std::set<std::string>{"model"}) << "the old one is gone";

  replace_file(out / "notes.txt", "somebody's");  // not a model's: file by file, then
  {
    StagedOutput s(out, Container::directory, Overwrite::allow);
    fill(s, "newer");
    s.publish();
  }
  EXPECT_EQ(read_text_file(out / "notes.txt"), "somebody's");
  EXPECT_EQ(read_text_file(out / "model.safetensors"), "newer");
}

TEST_F(Staged, ALinkIsFollowedAndStays) {
  fs::create_symlink("real.dat", root_ / "link.dat");
  StagedOutput s(root_ / "link.dat", Container::dat, Overwrite::refuse);
  replace_file(s.weights(), "weights");
  s.publish();
  EXPECT_TRUE(fs::is_symlink(root_ / "link.dat"));
  EXPECT_EQ(read_text_file(root_ / "real.dat"), "weights");
}

TEST_F(Staged, OneProgramAtATime) {
  const FileLock first = lock_output(root_ / "x" / "model");
  EXPECT_THROW(lock_output(root_ / "x" / "." / "model"), UsageError);
  const FileLock other = lock_output(root_ / "x" / "another");
}

TEST_F(Staged, TheRuleForEveryOutputFile) {
  replace_file(root_ / "there", "x");
  check_output_file({}, Overwrite::refuse);
  check_output_file(root_ / "new", Overwrite::refuse);
  check_output_file("/dev/null", Overwrite::refuse);
  EXPECT_THROW(check_output_file(root_ / "there", Overwrite::refuse), UsageError);
  check_output_file(root_ / "there", Overwrite::allow);
  EXPECT_THROW(check_output_file(root_ / "there", Overwrite::allow, {}, {root_ / "there"}),
               UsageError)
      << "never an input";
}

}  // namespace
}  // namespace nibble
