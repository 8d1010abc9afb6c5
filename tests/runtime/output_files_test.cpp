// SPDX-License-Identifier: MIT
#include "runtime/output_files.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "core/error.h"
#include "core/file.h"

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
  write_text_file_atomic(ours / "config.json", config(32));
  write_text_file_atomic(theirs / "config.json", config(48));
  const fs::path mine = root / "config.json";
  write_text_file_atomic(mine, config(32));
  EXPECT_THROW(refuse_other_model(mine, theirs, Overwrite::refuse), UsageError);
  refuse_other_model(mine, theirs, Overwrite::allow);
  refuse_other_model(mine, ours, Overwrite::refuse);
  refuse_other_model(mine, empty, Overwrite::refuse);
  refuse_other_model(theirs / "config.json", theirs, Overwrite::refuse);
  fs::remove_all(root);
}

}  // namespace
}  // namespace nibble
