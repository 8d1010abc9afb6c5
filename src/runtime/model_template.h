// SPDX-License-Identifier: MIT
// The chat template a model brings along, and the strings of its special tokens.
#pragma once
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenizer/chat_template.h"

namespace nibble {

struct ModelTemplate {
  std::string source;          // the Jinja text; empty: the model has none
  std::filesystem::path from;  // the file it stands in, for messages
  // bos_token, eos_token and what else tokenizer_config.json names, as templates know them.
  std::vector<std::pair<std::string, std::string>> token_strings;
};

// What tokenizer_config.json says of them; `where` names it. Throws FormatError.
void read_tokenizer_config(std::string_view text, const std::string& where, ModelTemplate& out);

// Looks where the model's tokenizer.json is: chat_template.jinja wins over tokenizer_config.json.
// Throws FormatError for files that are not what they should be.
ModelTemplate find_model_template(const std::filesystem::path& tokenizer);

// The template that is meant: "chatml", "qwen3", "predecessor", a file, or, where nothing is named,
// the model's own, and qwen3 where it has none. The log says which. Throws UsageError, FormatError,
// TemplateError.
ChatTemplate choose_template(const std::string& named, const std::filesystem::path& tokenizer);

}  // namespace nibble
