// SPDX-License-Identifier: MIT
// The results of `nibble check` as a page that needs nothing but itself: probes before and after,
// what a text and what questions say of the damage, dialogues.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace nibble {

// Of what check --json writes. Whatever a model may have replied is shown as text.
std::string check_page(const nlohmann::json& report);

}  // namespace nibble
