// SPDX-License-Identifier: MIT
// A checkpoint as a model: the file its run would export at that step in the form of its input (a
// GGUF: as dense weights), tensor by tensor and bit for bit, without a run's memory: what was
// trained comes from the checkpoint, the rest from the file the run began with.
#pragma once
#include <filesystem>
#include <memory>
#include <optional>

#include "convert/checkpoint_files.h"
#include "formats/tensor_source.h"
#include "model/gguf_model.h"

namespace nibble {

// The checkpoint that a name means: the file itself, or the newest sound one of a directory of
// checkpoints. Nothing when it is neither. Throws FormatError where none of several is sound.
std::optional<std::filesystem::path> find_checkpoint(const std::filesystem::path& named);

// What a checkpoint says of its beginning. Throws FormatError, also for one of an earlier version,
// which did not say it.
CheckpointBase checkpoint_base(const std::filesystem::path& checkpoint);

// Weights of a model, whatever file holds them: open_model_source() for files of weights, and a
// checkpoint as above.
std::unique_ptr<TensorSource> open_weights(const std::filesystem::path& path,
                                           TiedMatrix tied = TiedMatrix::as_stored);

}  // namespace nibble
