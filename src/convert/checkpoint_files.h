// SPDX-License-Identifier: MIT
// Checkpoints by their names in a directory, and what of their inside is not training's alone: the
// names of the entries that make up a model, and which model the run began with.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace nibble {

// The entry of a checkpoint's metadata that describes it, as JSON.
constexpr const char* kCheckpointKey = "nibble_run";
// Tensors: the dense master of a parameter, and its NVFP4 rows (a row's codes, then its scales).
constexpr const char* kMasterPrefix = "master.";
constexpr const char* kPackedPrefix = "nvfp4.";

// The files a run began with, absolute. What was not trained is read from there.
struct CheckpointBase {
  std::filesystem::path weights, config, tokenizer;
  bool tied = false;  // as it was trained
};

// "checkpoint-00000120.safetensors"
std::string checkpoint_name(int64_t step);
bool is_checkpoint_name(const std::filesystem::path& file);
struct CheckpointFile {
  std::filesystem::path path;
  int64_t step = 0;
};
// Complete checkpoints of a directory, oldest first; none when it does not exist.
std::vector<CheckpointFile> list_checkpoints(const std::filesystem::path& directory);

}  // namespace nibble
