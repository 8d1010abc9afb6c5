// SPDX-License-Identifier: MIT
#include "job/train_inputs.h"

#include "runtime/runtime.h"

namespace nibble {

TrainInputs open_train_inputs(const ModelOptions& model) {
  ModelPaths paths = resolve_model(model, TokenizerNeed::required);
  Config config = load_config(paths.config);
  Tokenizer tokenizer = Tokenizer::load(paths.tokenizer);
  check_tokenizer_fits(tokenizer, config, paths.tokenizer.string());
  auto source = open_tensor_source(paths.weights);
  return {std::move(paths), std::move(config), std::move(source), std::move(tokenizer)};
}

}  // namespace nibble
