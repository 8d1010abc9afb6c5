// SPDX-License-Identifier: MIT
#include "job/train_inputs.h"

#include "convert/checkpoint_model.h"
#include "core/sha256.h"
#include "runtime/model_template.h"
#include "runtime/model_texts.h"
#include "runtime/runtime.h"

namespace nibble {

TrainInputs open_train_inputs(const ModelOptions& model, const std::string& chat_template) {
  ModelPaths paths = resolve_model(model, TokenizerNeed::required);
  const std::string config_json = config_text(paths.config);
  Config config = parse_config(config_json, paths.config.string());
  add_end_tokens(config, load_generation_config(paths.config));
  const std::string tokenizer_json = tokenizer_text(paths.tokenizer);
  Tokenizer tokenizer = Tokenizer::parse(tokenizer_json, paths.tokenizer.string());
  check_tokenizer_fits(tokenizer, config, paths.tokenizer.string());
  auto source = open_weights(paths.weights, TiedMatrix::once);
  ChatTemplate chat = choose_template(chat_template, paths.tokenizer);
  return {std::move(paths),          std::move(config), std::move(source),
          std::move(tokenizer),      std::move(chat),   sha256_hex(config_json),
          sha256_hex(tokenizer_json)};
}

}  // namespace nibble
