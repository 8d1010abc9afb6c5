// SPDX-License-Identifier: MIT
// A run on disk: masters, NVFP4 weights, moments, counters, and what the run was told. One
// safetensors file with a checksum, which appears whole or not at all.
#pragma once
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "convert/checkpoint_files.h"
#include "train/trainer.h"

namespace nibble {

// What must be the same for a run to go on: model, data and every setting that changes results.
// Keys are the flags' names.
using RunIdentity = std::map<std::string, std::string>;
// Of the settings; data and sampling are added by who reads them, and the weights the run began
// with, a hash of all their bytes, under this key.
constexpr const char* kInputFileKey = "input file";
constexpr const char* kTeacherKey = "teacher";  // likewise, where one is asked
RunIdentity run_identity(const Config& config, const TrainSettings& settings);

// Of names, types, shapes and the first bytes of every tensor: tells files apart without reading
// gigabytes.
std::string source_fingerprint(const TensorSource& source);

// Where the run stands; weights and moments are in the state.
struct RunPosition {
  TrainerProgress trainer;
  uint64_t data_position = 0;  // samples taken so far
  std::string note{};          // what the caller wants back, as it is
};

// Removes those after `step`: a run that goes back leaves nothing to resume from beyond it.
void remove_checkpoints_after(const std::filesystem::path& directory, int64_t step);

// Removes all but the newest `keep` (0: keeps all) and what an interrupted save left behind.
void keep_newest_checkpoints(const std::filesystem::path& directory, int64_t keep);

// Bytes that save_checkpoint() will write.
uint64_t checkpoint_bytes(const TrainState& state);
// Writes directory/checkpoint_name(step), then keeps the newest. Throws FormatError; the older ones
// then are still there.
// `base`: what the run began with; with it the checkpoint is a model (convert/checkpoint_model.h).
std::filesystem::path save_checkpoint(const std::filesystem::path& directory,
                                      const TrainState& state, const RunPosition& position,
                                      const RunIdentity& identity, int64_t keep,
                                      const CheckpointBase& base = {});

// Gives a damaged one another name, so that it is in nobody's way. Never throws.
void set_aside(const std::filesystem::path& file) noexcept;

// Reads one into `state`. Throws UsageError that lists every difference when it belongs to another
// run, FormatError when the file is damaged; the state is then not to be used.
RunPosition load_checkpoint(const std::filesystem::path& file, TrainState& state,
                            const RunIdentity& identity);

// The tensors alone, of a file that rank 0 has found to be sound and this run's.
void load_checkpoint_tensors(const std::filesystem::path& file, TrainState& state);

}  // namespace nibble
