// SPDX-License-Identifier: MIT
// The shapes in which people keep conversations, as one record: messages, ShareGPT, Alpaca, a
// prompt with its answer under any of the common names, nibble's own chat log, plain text.
// docs/data.md has the table.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "data/lines.h"

namespace nibble {

// Whatever the object holds: messages of which the last may be the user's, or a text; what it holds
// beside that in DataRecord::ignored. Throws FormatError or UsageError.
DataRecord record_from_json(const nlohmann::ordered_json& object);
// Whether a record can begin with a member of this name.
bool begins_a_record(std::string_view key);
// A role under any of its names: human, gpt, observation. Throws UsageError.
Role role_from_any_name(std::string_view name);

// What is more likely a slip than meant in a conversation; and also what cannot be learned from.
void check_turns(std::span<const Message> messages);
void check_conversation(std::span<const Message> messages);

}  // namespace nibble
