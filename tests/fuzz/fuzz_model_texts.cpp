// SPDX-License-Identifier: MIT
// libFuzzer target: bytes as the small files beside a model: generation_config.json, and after a
// 't' tokenizer_config.json, whose template must compile or say why not.
#include "core/error.h"
#include "runtime/generation_config.h"
#include "runtime/model_template.h"
#include "tokenizer/jinja/template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace nibble;
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    if (!text.starts_with('t')) {
      parse_generation_config(text, "generation_config.json").describe();
      return 0;
    }
    ModelTemplate found;
    read_tokenizer_config(text.substr(1), "tokenizer_config.json", found);
    if (!found.source.empty()) jinja::Template::compile(found.source, "fuzz");
  } catch (const FormatError&) {
  } catch (const jinja::TemplateError&) {
  }
  return 0;
}
