// SPDX-License-Identifier: MIT
// The flags of chat and generate that say how a conversation is written.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "apps/options/options.h"
#include "tokenizer/chat_template.h"

namespace nibble {

enum class ThinkingChoice { automatic, on, off };

struct TemplateFlags {
  std::string chat_template;  // empty: the model's own
  ThinkingChoice thinking = ThinkingChoice::automatic;
  std::filesystem::path tools_file;
  bool parse_content = false;

  void visit_fields(Fields& f);
  void visit_choice(Fields& f);  // the template and what it is told, without contents
  bool used() const;
  std::optional<bool> enable_thinking() const;
  // The functions of the file, as render() takes them. Throws FormatError.
  std::vector<std::string> tools() const;
  ContentTokens content() const {
    return parse_content ? ContentTokens::parse : ContentTokens::plain;
  }
};

inline constexpr const char* kTemplateHelp =
    "The chat template: chatml, qwen3, predecessor or a Jinja file; by default the model's own";

}  // namespace nibble
