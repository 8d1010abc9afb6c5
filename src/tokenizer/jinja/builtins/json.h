// SPDX-License-Identifier: MIT
// JSON as values of a template.
#pragma once
#include <nlohmann/json_fwd.hpp>

#include "tokenizer/jinja/value.h"

namespace nibble::jinja {

// All its texts, keys included, are of this origin. Raises LimitError when it is nested too deeply.
Value from_json(const nlohmann::ordered_json& j, Origin origin, Budget& budget);

}  // namespace nibble::jinja
