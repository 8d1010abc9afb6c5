// SPDX-License-Identifier: MIT
// Records to tokens. A prompt is rendered and encoded as chat and generate do it (but that the text
// of special tokens stays text unless asked for), and the response is appended as tokens of its
// own: what is learned is what will be asked.
#include <algorithm>

#include "core/error.h"
#include "train/dataset_parts.h"

namespace nibble {
namespace {

void append(DataTokens& out, std::span<const int32_t> ids, uint8_t flags) {
  out.ids.insert(out.ids.end(), ids.begin(), ids.end());
  out.flags.insert(out.flags.end(), ids.size(), flags);
}

// Content and tool calls of one assistant turn, between the generation prompt and "<|im_end|>".
std::vector<int32_t> encode_response(const Message& m, const Tokenizer& tokenizer,
                                     const DatasetOptions& options) {
  if (m.tool_calls.empty()) return tokenizer.encode(m.content, options.content);
  // Only the template knows how calls are written: encode the whole turn and take off its ends.
  auto ids = encode_chat(tokenizer, std::span(&m, 1), {}, {options.style, GenerationPrompt::no},
                         options.content);
  const auto head = tokenizer.encode("<|im_start|>assistant\n"), tail = tokenizer.encode(kTurnEnd);
  if (ids.size() < head.size() + tail.size() ||
      !std::equal(head.begin(), head.end(), ids.begin())) {
    throw_format(
        "an assistant message with tool calls begins with white space, which joins the template's "
        "line end; remove it");
  }
  ids.erase(ids.end() - std::ptrdiff_t(tail.size()), ids.end());
  ids.erase(ids.begin(), ids.begin() + std::ptrdiff_t(head.size()));
  return ids;
}

DataTokens encode_conversation(const DataRecord& record, const Tokenizer& tokenizer,
                               const DatasetOptions& options) {
  require_chat_tokens(tokenizer);
  const ChatOptions asking{options.style, GenerationPrompt::yes};
  const std::span<const Message> messages = record.messages;
  const int32_t im_end = *tokenizer.im_end();
  DataTokens out;
  size_t from = 0;  // the first message not yet written
  for (size_t i = 0; i < messages.size(); ++i) {
    if (messages[i].role != Role::assistant) continue;
    if (from > 0) append(out, tokenizer.encode(kTurnEnd.substr(kTurnEnd.find('>') + 1)), 0);
    const auto tools = from == 0 ? std::span(record.tools) : std::span<const std::string>();
    const auto prompt = messages.subspan(from, i - from);
    append(out, encode_chat(tokenizer, prompt, tools, asking, options.content), 0);
    const auto response = encode_response(messages[i], tokenizer, options);
    append(out, response, kScored);
    const bool learn_end = options.end_token == EndToken::learn;
    out.last_response = int64_t(response.size()) + (learn_end ? 1 : 0);
    from = i + 1;
    // Between turns the end is there in any case, as the template has it.
    if (learn_end || from < messages.size()) {
      append(out, std::span(&im_end, 1), learn_end ? kScored : uint8_t(0));
    }
  }
  return out;
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
