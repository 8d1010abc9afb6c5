// SPDX-License-Identifier: MIT
// What --keep names, told by ending and content: text, conversations, prompts that the teacher
// answers first, or text that it writes itself.
#pragma once
#include <string>
#include <vector>

#include "data/lines.h"
#include "data/read/data_reader.h"

namespace nibble {

enum class KeptKind {
  text,           // .txt, or records of {"text": ...}
  conversations,  // .tsv, or records of messages that end with the assistant's
  prompts,        // records that end with the user's words; a .json of probes
  self,           // "self:TOKENS"
};

struct KeptSource {
  std::string name;  // as it was given
  KeptKind kind = KeptKind::text;
  bool probes = false;  // prompts: a probe file
  int64_t tokens = 0;   // self
  ExtraKeys extra = ExtraKeys::count;
};

// Reads the first record of a file (a folder: of its first one). Throws UsageError, FormatError.
KeptSource kept_source(const std::string& name, ExtraKeys extra = ExtraKeys::count);

// The conversations of a source of prompts, each up to where the model is to answer. Throws
// FormatError with the line.
std::vector<std::vector<Message>> kept_prompts(const KeptSource& source);

}  // namespace nibble
