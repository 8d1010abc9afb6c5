// SPDX-License-Identifier: MIT
// A GGUF as the Hugging Face model it was made from: config.json in its words, and its tensors
// under its names, with the rows in its order. Readers stay those of Hugging Face files.
#pragma once
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "formats/gguf/gguf.h"
#include "model/config.h"

namespace nibble {

// Whether the metadata describes a model (an architecture and its blocks, not just a name that the
// usual writers always put there); without, the file is a bag of tensors.
bool is_gguf_model(const GgufMetadata& metadata);

// The text of config.json. FormatError for a family or a feature that is not supported, by name.
// The head counts as tied when the file has none, or one that is the embedding at another precision
// (model/same_matrix.h).
std::string gguf_config_json(const GgufSource& source);

// How files of this architecture order the rows of q and k: the two that are rotated together side
// by side (true), or one half of a head after the other, as Hugging Face has them.
bool gguf_pairs_adjacent(const GgufMetadata& metadata);

// The Hugging Face name of a tensor; empty for one that has no place in such a model.
std::string gguf_tensor_name(std::string_view name);

// The way back; FormatError for a tensor that has no place there.
std::string gguf_name_of(std::string_view hugging_face);

// A tied matrix that a GGUF holds at two precisions: as it lies there, which is what inference
// uses, or as the one matrix that training has, which is the finer of the two, under the
// embedding's name.
enum class TiedMatrix { as_stored, once };

// The tensors under Hugging Face names. FormatError naming those that have no place. Linear layers
// and a head in NVFP4 are packed matrices, as they are in other files; whatever else lies in blocks
// is expanded.
std::unique_ptr<TensorSource> as_hugging_face(std::unique_ptr<GgufSource> source,
                                              TiedMatrix tied = TiedMatrix::as_stored);

// Weights of a model, whatever file holds them: a GGUF model under Hugging Face names, anything
// else (a bag, too) as open_tensor_source() gives it.
std::unique_ptr<TensorSource> open_model_source(const std::filesystem::path& path,
                                                TiedMatrix tied = TiedMatrix::as_stored);

// A model to be written as a GGUF: the rows of q and k in the order its architecture has there.
// `source` must outlive the view.
std::unique_ptr<TensorSource> in_gguf_order(const TensorSource& source, const Config& config);

// Whether llama.cpp multiplies by the global scale of this matrix (by Hugging Face's name) where it
// is NVFP4: the feed-forward layers of its qwen2 read theirs and leave them out (ADR 0022).
bool gguf_applies_global_scale(const Config& config, std::string_view name);

// The keys that say what the model is. FormatError for what a GGUF has no words for.
GgufMetadata gguf_model_metadata(const Config& config);
// What the rotation is divided by, pair by pair, where the file holds that as a tensor (Llama 3's
// rope); empty elsewhere.
inline constexpr std::string_view kGgufFrequencies = "rope_freqs.weight";
std::vector<float> gguf_rope_divisors(const Config& config);

}  // namespace nibble
