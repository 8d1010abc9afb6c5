// SPDX-License-Identifier: MIT
#include "tokenizer/scored_chat.h"

#include <algorithm>
#include <optional>

#include "core/error.h"

namespace nibble {
namespace {

using jinja::Rendering;

// Stretches that stand in {% generation %}.
std::vector<ReplySpan> generated_spans(const Rendering& r) {
  std::vector<ReplySpan> out;
  size_t at = 0;
  for (const jinja::Run& run : r.runs) {
    if (run.origin.generated) {
      if (!out.empty() && out.back().end == at) {
        out.back().end = run.end;
      } else {
        out.push_back({at, run.end});
      }
    }
    at = run.end;
  }
  return out;
}

struct Shown {
  std::optional<size_t> begin;  // of the first byte that message says
  size_t end = 0;               // behind the last
};

// Where the words of message i stand.
Shown shown(const Rendering& r, size_t i) {
  Shown out;
  size_t at = 0;
  for (const jinja::Run& run : r.runs) {
    if (run.origin.source == ChatTemplate::kFirstMessage + i) {
      if (!out.begin) out.begin = at;
      out.end = run.end;
    }
    at = run.end;
  }
  return out;
}

bool has_outside_text(const Rendering& r, size_t from, size_t to) {
  size_t at = 0;
  for (const jinja::Run& run : r.runs) {
    if (run.origin.from_outside() && run.end > from && at < to) return true;
    at = run.end;
  }
  return false;
}

size_t common_prefix(const std::string& a, const std::string& b) {
  const auto ends = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return size_t(ends.first - a.begin());
}

// The end of the first special token that the template writes behind `from`, before anybody else
// says something; `from` itself when there is none.
size_t end_token(const Rendering& r, size_t from, const Tokenizer& tokenizer) {
  size_t to = from;
  for (const jinja::Run& run : r.runs) {
    if (run.end > from) {
      if (run.origin.from_outside()) break;
      to = run.end;
    }
  }
  const std::string_view tail = std::string_view(r.text).substr(from, to - from);
  for (const int32_t id : tokenizer.encode(tail)) {
    if (!tokenizer.is_special(id)) continue;
    const std::string_view token = tokenizer.token_bytes(id);
    const size_t found = tail.find(token);
    return found == tail.npos ? from : from + found + token.size();
  }
  return from;
}

}  // namespace

std::vector<ReplySpan> reply_spans(const ChatTemplate& chat, std::span<const Message> messages,
                                   std::span<const std::string> tools, const Rendering& whole,
                                   const Tokenizer& tokenizer, std::optional<bool> thinking) {
  std::vector<ReplySpan> out = generated_spans(whole);
  if (!out.empty()) return out;
  size_t before = 0;  // the end of the reply before
  for (size_t i = 0; i < messages.size(); ++i) {
    if (messages[i].role != Role::assistant) continue;
    const Shown words = shown(whole, i);
    std::optional<size_t> begin = words.begin;
    if (i > 0) {
      const std::string asked =
          chat.render(messages.first(i), tools, GenerationPrompt::yes, thinking).text;
      const size_t common = common_prefix(asked, whole.text);
      // Where the template writes old turns differently from new ones the two part long before.
      const bool near =
          common >= before && (common == asked.size() ||
                               (words.begin && !has_outside_text(whole, common, *words.begin)));
      if (near && (!begin || common < *begin)) begin = common;
    }
    if (!begin) {
      throw_usage("the chat template '{}' shows nothing of message {}, an assistant's", chat.name(),
                  i + 1);
    }
    const size_t end = end_token(whole, std::max(words.end, *begin), tokenizer);
    if (end == *begin) {
      throw_usage("the chat template '{}' shows nothing of message {}, an assistant's", chat.name(),
                  i + 1);
    }
    out.push_back({*begin, end});
    before = end;
  }
  return out;
}

ScoredChat encode_scored(const Tokenizer& tokenizer, const ChatTemplate& chat,
                         std::span<const Message> messages, std::span<const std::string> tools,
                         ContentTokens content, bool learn_end) {
  const Rendering whole = chat.render(messages, tools, GenerationPrompt::no, std::nullopt);
  const std::vector<ReplySpan> replies = reply_spans(chat, messages, tools, whole, tokenizer);
  ScoredChat out;
  size_t at = 0;
  const auto append = [&](size_t from, size_t to, uint8_t scored) {
    const auto ids = encode_rendering(tokenizer, whole, content, from, to);
    out.ids.insert(out.ids.end(), ids.begin(), ids.end());
    out.scored.insert(out.scored.end(), ids.size(), scored);
    return ids.size();
  };
  for (const ReplySpan& reply : replies) {
    append(at, reply.begin, 0);
    out.last_reply = int64_t(append(reply.begin, reply.end, 1));
    at = reply.end;
    if (learn_end || out.ids.empty() || !tokenizer.is_special(out.ids.back())) continue;
    --out.last_reply;
    out.scored.back() = 0;
    if (&reply == &replies.back()) {
      out.ids.pop_back();
      out.scored.pop_back();
    }
  }
  return out;
}

}  // namespace nibble
