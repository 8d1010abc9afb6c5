// SPDX-License-Identifier: MIT
// The model a job starts from: its files, its shape, its weights and its tokenizer.
#pragma once
#include <memory>

#include "formats/tensor_source.h"
#include "model/config.h"
#include "runtime/model_paths.h"
#include "tokenizer/tokenizer.h"

namespace nibble {

struct TrainInputs {
  ModelPaths paths;
  Config config;
  std::unique_ptr<TensorSource> source;
  Tokenizer tokenizer;
};
// Reads headers, not weights. Throws UsageError, FormatError.
TrainInputs open_train_inputs(const ModelOptions& model);

}  // namespace nibble
