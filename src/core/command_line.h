// SPDX-License-Identifier: MIT
// Command lines as text that a shell reads back.
#pragma once
#include <string>
#include <string_view>

namespace nibble {

std::string shell_quoted(std::string_view word);
std::string own_command_line();  // of this process

}  // namespace nibble
