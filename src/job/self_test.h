// SPDX-License-Identifier: MIT
// After an export: the file is loaded again and must say, through the inference path, what the
// trainer's own forward said; and a prompt is answered.
#pragma once
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "runtime/runtime.h"
#include "train/packing.h"

namespace nibble {

struct SelfTestFlags {
  bool enabled = true;
  std::string prompt;               // empty: the first training sample's
  std::vector<std::string> expect;  // must all occur in the reply
  int64_t max_tokens = 64;

  void visit_fields(Fields& f);
};

// What the trainer knows about the first sample before its memory is given back.
struct SelfTestReference {
  PackedBatch batch;  // one sample
  // By the trainer's forward; empty where that is no measure of the file: another loss than cross
  // entropy, or a file of 4 bits trained without them.
  std::optional<double> loss;
  std::vector<int32_t> prompt_ids;  // its rows up to the first scored one
};

// Exit code check_failed, with the reason on `out`, when the two losses differ or the reply lacks
// something expected.
ExitCode self_test(const SelfTestFlags& flags, const RuntimeOptions& exported,
                   const SelfTestReference& reference, TemplateStyle style, std::ostream& out);

}  // namespace nibble
