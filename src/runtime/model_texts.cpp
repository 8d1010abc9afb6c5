// SPDX-License-Identifier: MIT
#include "runtime/model_texts.h"

#include <algorithm>

#include "core/file.h"
#include "formats/gguf/gguf.h"
#include "model/config.h"
#include "model/gguf_model.h"
#include "runtime/gguf_texts.h"
#include "tokenizer/tokenizer_data.h"

namespace nibble {
namespace fs = std::filesystem;

fs::path place_of(const fs::path& file) {
  if (fs::is_directory(file) || looks_like_gguf(file)) return file;
  return file.has_parent_path() ? file.parent_path() : fs::path(".");
}

std::optional<std::string> companion_text(const fs::path& place, const std::string& name) {
  if (fs::is_directory(place)) {
    if (!fs::is_regular_file(place / name)) return std::nullopt;
    return read_text_file(place / name);
  }
  constexpr std::string_view kMade[] = {"config.json", "tokenizer.json", "tokenizer_config.json",
                                        "generation_config.json"};
  if (std::ranges::find(kMade, name) == std::end(kMade) || !looks_like_gguf(place)) {
    return std::nullopt;
  }
  const auto source = open_gguf(place);
  const GgufMetadata& m = source->values();
  const bool model = is_gguf_model(m), tokens = m.has("tokenizer.ggml.tokens");
  if (name == "config.json" && model) return gguf_config_json(*source);
  if (name == "tokenizer.json" && tokens) return gguf_tokenizer_json(m);
  if (name == "tokenizer_config.json" && tokens) return gguf_tokenizer_config_json(m);
  if (name == "generation_config.json" && model) return gguf_generation_config_json(m);
  return std::nullopt;
}

std::string tokenizer_text(const fs::path& file) {
  if (looks_like_gguf(file)) return gguf_tokenizer_json(open_gguf(file)->values());
  return read_text_file(file, kMaxTokenizerJson);
}

Tokenizer load_tokenizer(const fs::path& file) {
  return Tokenizer::parse(tokenizer_text(file), file.string());
}

}  // namespace nibble
