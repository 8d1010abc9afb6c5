// SPDX-License-Identifier: MIT
// Records to tokens, rendered and encoded as chat and generate do it: what is learned is what will
// be asked.
#include <algorithm>

#include "core/error.h"
#include "tokenizer/scored_chat.h"
#include "train/dataset_parts.h"

namespace nibble {
namespace {

void append(DataTokens& out, std::span<const int32_t> ids, uint8_t flags) {
  out.ids.insert(out.ids.end(), ids.begin(), ids.end());
  out.flags.insert(out.flags.end(), ids.size(), flags);
}

DataTokens encode_conversation(const DataRecord& record, const Tokenizer& tokenizer,
                               const DatasetOptions& options) {
  if (options.style.style()) require_chat_tokens(tokenizer);
  ScoredChat chat = encode_scored(tokenizer, options.style, record.messages, record.tools,
                                  options.content, options.end_token == EndToken::learn);
  static_assert(kScored == 1, "what is scored is flagged so");
  return {std::move(chat.ids), std::move(chat.scored), chat.last_reply};
}

}  // namespace

void require_chat_tokens(const Tokenizer& tokenizer) {
  if (tokenizer.im_start() && tokenizer.im_end()) return;
  throw_usage(
      "the tokenizer has no {}, which conversations are written with; use the tokenizer.json of a "
      "chat model",
      tokenizer.im_start() ? "<|im_end|>" : "<|im_start|>");
}

DataTokens encode_record(const DataRecord& record, const Tokenizer& tokenizer,
                         const DatasetOptions& options) {
  DataTokens out;
  if (record.messages.empty()) {
    append(out, tokenizer.encode(record.text, options.content), kScored);
  } else {
    out = encode_conversation(record, tokenizer, options);
  }
  if (options.use == DataUse::pretrain) {
    const int32_t end = *options.document_end;
    append(out, std::span(&end, 1), kScored);
    std::fill(out.flags.begin(), out.flags.end(), kScored);
    out.flags.front() = kSegmentStart;  // nothing stands before it
  }
  return out;
}

}  // namespace nibble
