// SPDX-License-Identifier: MIT
// What is to be answered, from files: one conversation, or many. Any of the shapes that training
// data may have (data/read/shapes.h), without its last answer.
#pragma once
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "data/read/data_reader.h"

namespace nibble {

struct AskedPrompt {
  std::vector<Message> messages;   // a conversation that ends with a question,
  std::vector<std::string> tools;  // as render() takes them,
  std::string text;                // or, without messages, a text to be continued
  std::string id;                  // JSON: the line's own "id", or else its number
  int64_t line = 0;
};

// One conversation: an object, or an array of messages. Throws FormatError with file and line.
AskedPrompt read_messages_file(const std::filesystem::path& file);
// A prompt of each line (.jsonl), element (.json) or row (.csv). Keys that say nothing are counted,
// which is logged, or refused.
std::vector<AskedPrompt> read_batch_file(const std::filesystem::path& file, ExtraKeys extra);

}  // namespace nibble
