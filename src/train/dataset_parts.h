// SPDX-License-Identifier: MIT
// The step between a record of a data file (data/lines.h) and a Dataset. Private to the
// dataset*.cpp files. What is wrong with a record is thrown without its place; dataset.cpp adds it.
#pragma once
#include "train/dataset.h"

namespace nibble {

struct DataTokens {
  std::vector<int32_t> ids;
  std::vector<uint8_t> flags;
  int64_t last_response = 0;  // scored tokens of the last assistant turn
};
void require_chat_tokens(const Tokenizer& tokenizer);  // throws UsageError
DataTokens encode_record(const DataRecord& record, const Tokenizer& tokenizer,
                         const DatasetOptions& options);

}  // namespace nibble
