// SPDX-License-Identifier: MIT
// What --keep names, told by ending and content: text, conversations, prompts that the teacher
// answers first, or text that it writes itself.
#pragma once
#include <string>
#include <vector>

#include "data/lines.h"

namespace nibble {

enum class KeptKind {
  text,           // .txt, or .jsonl of {"text": ...}
  conversations,  // .tsv, or .jsonl of messages that end with the assistant's
  prompts,        // .jsonl of {"prompt": ...} or messages that end with the user's; .json of probes
  self,           // "self:TOKENS"
};

struct KeptSource {
  std::string name;  // as it was given
  KeptKind kind = KeptKind::text;
  DataFormat format = DataFormat::jsonl;
  int64_t tokens = 0;  // self
};

// Reads the first line of a .jsonl. Throws UsageError, FormatError.
KeptSource kept_source(const std::string& name);

// The conversations of a source of prompts, each up to where the model is to answer. Throws
// FormatError with the line.
std::vector<std::vector<Message>> kept_prompts(const KeptSource& source);

}  // namespace nibble
