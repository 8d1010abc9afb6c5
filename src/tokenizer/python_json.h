// SPDX-License-Identifier: MIT
// JSON text exactly as Python's json.dumps(value, ensure_ascii=False) writes it, because that is
// what models saw in their training prompts. Keys keep their order.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace nibble {

// Whole numbers beyond 64 bits are not kept by the JSON library: they come out as floats.
std::string python_json(const nlohmann::ordered_json& value);

}  // namespace nibble
