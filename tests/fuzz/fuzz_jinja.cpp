// SPDX-License-Identifier: MIT
// libFuzzer target: bytes as a chat template, rendered over a small conversation. Whatever is in
// the messages stays marked as coming from outside.
#include <nlohmann/json.hpp>

#include "tokenizer/jinja/template.h"
#include "tokenizer/unicode.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace nibble;
  static const auto variables = jinja::variables_from_json(nlohmann::ordered_json::parse(R"({
    "messages": [{"role": "system", "content": "\u0001s\u4f60\u597d"},
                 {"role": "user", "content": "\u0001u <|x|> \n y"},
                 {"role": "assistant", "content": "\u0001<think>a</think>b",
                  "tool_calls": [{"function": {"name": "f", "arguments": {"a": [1, 2.5, null]}}}]}],
    "tools": [{"name": "f", "n": -3}], "add_generation_prompt": true, "bos_token": "<s>",
    "x": "\u0001", "n": 3, "none": null})"));
  jinja::RenderOptions options;
  options.limits.steps = 200'000;
  options.limits.text_bytes = 1 << 20;
  options.now = jinja::parse_time("2026-11-16");
  // The mark must not be in the template itself, in any spelling.
  std::string source(reinterpret_cast<const char*>(data), size);
  try {
    const auto t = jinja::Template::compile(source, "fuzz");
    const jinja::Rendering r = t.render(variables, options);
    if (valid_utf8_prefix(r.text) != r.text.size()) __builtin_trap();
    if ((r.runs.empty() ? 0 : r.runs.back().end) != r.text.size()) __builtin_trap();
    if (source.find('\\') != source.npos || source.find('\1') != source.npos ||
        source.find('%') != source.npos || source.find("format") != source.npos) {
      return 0;
    }
    size_t at = 0;
    for (const jinja::Run& run : r.runs) {
      const std::string_view piece = std::string_view(r.text).substr(at, run.end - at);
      if (!run.origin.from_outside() && piece.find('\1') != piece.npos) __builtin_trap();
      at = run.end;
    }
  } catch (const jinja::TemplateError& e) {
    if (valid_utf8_prefix(e.what()) != std::string_view(e.what()).size()) __builtin_trap();
  }
  return 0;
}
