// SPDX-License-Identifier: MIT
// libFuzzer target: bytes as a file of questions with choices.
#include <string_view>

#include "core/error.h"
#include "eval/damage/choice_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const nibble::ChoiceSet set = nibble::parse_choices(
        std::string_view(reinterpret_cast<const char*>(data), size), "choices.jsonl");
    if (set.questions.empty()) __builtin_trap();
    for (const nibble::ChoiceQuestion& q : set.questions) {
      if (q.question.empty() || q.choices.empty() || q.answer < 0 ||
          size_t(q.answer) >= q.choices.size()) {
        __builtin_trap();
      }
    }
  } catch (const nibble::FormatError&) {
  }
  return 0;
}
