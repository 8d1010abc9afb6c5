// SPDX-License-Identifier: MIT
#include "job/train_inputs.h"

#include "convert/checkpoint_model.h"
#include "runtime/model_template.h"
#include "runtime/model_texts.h"
#include "runtime/runtime.h"

namespace nibble {

TrainInputs open_train_inputs(const ModelOptions& model, const std::string& chat_template) {
  ModelPaths paths = resolve_model(model, TokenizerNeed::required);
  Config config = load_config(paths.config);
  add_end_tokens(config, load_generation_config(paths.config));
  Tokenizer tokenizer = load_tokenizer(paths.tokenizer);
  check_tokenizer_fits(tokenizer, config, paths.tokenizer.string());
  auto source = open_weights(paths.weights, TiedMatrix::once);
  ChatTemplate chat = choose_template(chat_template, paths.tokenizer);
  return {std::move(paths), std::move(config), std::move(source), std::move(tokenizer),
          std::move(chat)};
}

}  // namespace nibble
