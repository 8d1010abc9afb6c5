// SPDX-License-Identifier: MIT
// A small tokenizer.json of Qwen's structure, as text and as a document that tests can change.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

namespace nibble::test {

using Json = nlohmann::ordered_json;
using Merges = std::vector<std::pair<std::string, std::string>>;

const Merges& mini_merges();
// 256 bytes as ids 0..255, then one token per merge, then the added tokens.
std::string mini_tokenizer_text(const Merges& merges = mini_merges());
// The same, for those who include <nlohmann/json.hpp> (it costs seconds to compile).
Json mini_tokenizer(const Merges& merges = mini_merges());

}  // namespace nibble::test
