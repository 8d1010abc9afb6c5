// SPDX-License-Identifier: MIT
#include "runtime/model_output.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "runtime/generation_config.h"
#include "runtime/gguf_keys.h"
#include "runtime/model_texts.h"
#include "runtime/staged_output.h"

namespace nibble {
namespace {

using OrderedJson = nlohmann::ordered_json;

OrderedJson ids_json(const std::vector<int32_t>& ids) {
  return ids.size() == 1 ? OrderedJson(ids[0]) : OrderedJson(ids);
}

std::vector<int32_t> end_ids(const OutputTexts& texts) {
  Config config = load_config(texts.config);
  GenerationConfig generation = load_generation_config(texts.config);
  for (const int32_t id : config.eos_ids) {
    if (std::ranges::find(generation.eos_ids, id) == generation.eos_ids.end()) {
      generation.eos_ids.push_back(id);
    }
  }
  return generation.eos_ids;
}

std::string tokenizer_config(const OutputTexts& texts) {
  const Tokenizer t = load_tokenizer(texts.tokenizer);
  OrderedJson j;
  j["tokenizer_class"] = "PreTrainedTokenizerFast";
  j["clean_up_tokenization_spaces"] = false;
  j["model_max_length"] = load_config(texts.config).max_positions;
  for (const int32_t id : end_ids(texts)) {
    if (id >= t.vocab_size() || j.contains("eos_token")) continue;
    j["eos_token"] = t.token_text(id);
  }
  if (const auto id = t.endoftext()) j["pad_token"] = t.token_text(*id);
  const std::string chat = fallback_template(t);
  if (!chat.empty()) j["chat_template"] = chat;
  return j.dump(2) + "\n";
}

std::string generation_config(const OutputTexts& texts) {
  OrderedJson j = OrderedJson::object();
  const std::vector<int32_t> ends = end_ids(texts);
  if (!ends.empty()) j["eos_token_id"] = ids_json(ends);
  j["do_sample"] = false;
  return j.dump(2) + "\n";
}

}  // namespace

std::string fallback_template(const Tokenizer& t) {
  if (!t.im_start() || !t.im_end()) return {};
  return "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + "
         "message['content'] + '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}"
         "{{ '<|im_start|>assistant\n' }}{% endif %}";
}

GgufMetadata output_metadata(Container container, const Config& stored, const OutputTexts& texts) {
  if (container != Container::gguf) return GgufMetadata();
  return gguf_keys(texts.config, texts.tokenizer, stored, texts.origin);
}

void complete_output(StagedOutput& output, Container container, const OutputTexts& texts,
                     const GgufMetadata& metadata, Overwrite overwrite) {
  if (container == Container::gguf) {
    const std::string name = output.weights().filename().string();
    output.companion("Modelfile", ollama_modelfile(name, metadata), overwrite);
  }
  if (container != Container::directory) return;
  const auto add = [&](const char* name, auto&& make) {
    if (!output.has(name)) output.companion(name, make(texts), overwrite);
  };
  if (!texts.tokenizer.empty()) add("tokenizer_config.json", tokenizer_config);
  add("generation_config.json", generation_config);
  output.companion(kModelCard, model_card(texts.origin), overwrite);
}

}  // namespace nibble
