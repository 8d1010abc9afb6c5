// SPDX-License-Identifier: MIT
// Private to formats/: the two JSON texts of safetensors, parsed without building a document, so
// that a hostile header costs no more memory than its valid content.
#pragma once
#include <map>
#include <string>
#include <string_view>

#include "formats/safetensors.h"

namespace nibble {

// file_offset counts from the start of the payload; dtype, shape and n_bytes agree.
SafetensorsHeader parse_safetensors_json(std::string_view text, const std::string& path);
// The weight_map of an index: tensor -> shard.
std::map<std::string, std::string> parse_safetensors_index(std::string_view text,
                                                           const std::string& path);

}  // namespace nibble
