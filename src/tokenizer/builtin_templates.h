// SPDX-License-Identifier: MIT
// The chat templates that come with nibble, as Jinja text: one renderer serves these and the ones
// models bring along.
#pragma once
#include <string_view>

namespace nibble {

enum class TemplateStyle {
  chatml,  // roles and contents between "<|im_start|>" and "<|im_end|>", nothing else
  qwen3,   // ChatML with tools as Qwen3's template writes them
  // As the predecessor trained: a newline before "<|im_end|>" of user and system turns. Its
  // template knew a single user turn only; everything else is as in qwen3.
  predecessor,
};

std::string_view template_name(TemplateStyle style);
std::string_view template_source(TemplateStyle style);

}  // namespace nibble
