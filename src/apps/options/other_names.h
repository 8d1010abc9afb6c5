// SPDX-License-Identifier: MIT
// What other programs call our options: Hugging Face's trainers, llama.cpp and their kind. Unlike
// the predecessor's (legacy_flags.h) they are not accepted, since many of them mean nearly the same
// only; whoever types one is told ours.
#pragma once
#include <span>
#include <string_view>

namespace nibble {

struct OtherName {
  std::string_view flag;     // with dashes, no underscores
  std::string_view ours;     // our flag, or empty
  std::string_view explain;  // what to know beside that, or instead of it; may be empty
};

std::span<const OtherName> other_names();
// Of any spelling: underscores count as dashes. Null when it is none we know.
const OtherName* find_other_name(std::string_view flag);

}  // namespace nibble
