// SPDX-License-Identifier: MIT
// Where a filter of some name is.
#include "tokenizer/jinja/builtins/builtins.h"

namespace nibble::jinja {

FilterBody find_filter(std::string_view name) {
  for (const auto find :
       {find_text_filter, find_sequence_filter, find_select_filter, find_number_filter}) {
    if (const FilterBody f = find(name)) return f;
  }
  return nullptr;
}

bool is_filter(std::string_view name) { return find_filter(name) != nullptr; }
bool is_test(std::string_view name) { return find_test(name) != nullptr; }

}  // namespace nibble::jinja
