// SPDX-License-Identifier: MIT
// After an export: the file is loaded again and must say, through the inference path, what the
// trainer's own forward said; and a prompt is answered.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "job/job_events.h"
#include "runlog/run_record.h"
#include "runtime/runtime.h"
#include "train/packing.h"

namespace nibble {

struct SelfTestSettings {
  bool enabled = true;
  std::string prompt;               // empty: the first training sample's
  std::vector<std::string> expect;  // must all occur in the reply
  int64_t max_tokens = 64;
};

// What the trainer knows about the first sample before its memory is given back.
struct SelfTestReference {
  PackedBatch batch;  // one sample
  // By the trainer's forward; empty where that is no measure of the file: another loss than cross
  // entropy, or a file of 4 bits trained without them.
  std::optional<double> loss;
  std::vector<int32_t> prompt_ids;  // its rows up to the first scored one
};

// Opens the exported file anew. Failed, with the reason as text, when the two losses differ, the
// reply lacks something expected or the model is broken.
SelfTestRecord self_test(const SelfTestSettings& settings, const RuntimeOptions& exported,
                         const SelfTestReference& reference, const ChatTemplate& style,
                         JobEvents& events);

}  // namespace nibble
