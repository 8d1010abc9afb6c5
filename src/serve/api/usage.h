// SPDX-License-Identifier: MIT
// What a request has cost, as OpenAI's replies say it.
#pragma once
#include <nlohmann/json_fwd.hpp>

#include "serve/api/choices.h"

namespace nibble {

nlohmann::ordered_json usage_json(const Choices& choices);

}  // namespace nibble
