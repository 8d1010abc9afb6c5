// SPDX-License-Identifier: MIT
// Names of replies: "chatcmpl-" and 24 random digits.
#pragma once
#include <string>
#include <string_view>

namespace nibble {

std::string new_reply_id(std::string_view prefix);

}  // namespace nibble
