// SPDX-License-Identifier: MIT
// The model a job starts from: its files, its shape, its weights and its tokenizer.
#pragma once
#include <memory>
#include <string>

#include "formats/tensor_source.h"
#include "model/config.h"
#include "runtime/model_paths.h"
#include "tokenizer/chat_template.h"
#include "tokenizer/tokenizer.h"

namespace nibble {

struct TrainInputs {
  ModelPaths paths;
  Config config;
  std::unique_ptr<TensorSource> source;
  Tokenizer tokenizer;
  ChatTemplate chat;  // the model's own, or nibble's
  // Of config.json and tokenizer.json as they were read, or as a GGUF's metadata make them.
  std::string config_sha256, tokenizer_sha256;
};
// Reads headers, not weights. Throws UsageError, FormatError.
// `chat_template`: a name or a file; empty: the model's own.
TrainInputs open_train_inputs(const ModelOptions& model, const std::string& chat_template = {});

}  // namespace nibble
