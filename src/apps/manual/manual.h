// SPDX-License-Identifier: MIT
// Manual pages in roff, made of the option declarations.
#pragma once
#include <string>

namespace nibble {

struct Command;

std::string manual_page();                        // nibble(1)
std::string manual_page(const Command& command);  // nibble-train(1)

}  // namespace nibble
