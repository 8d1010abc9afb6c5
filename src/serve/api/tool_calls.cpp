// SPDX-License-Identifier: MIT
#include "serve/api/tool_calls.h"

#include <optional>
#include <utility>

#include "core/json.h"
#include "serve/api/reply_ids.h"

namespace nibble {
namespace {

constexpr std::string_view kOpen = "<tool_call>", kClose = "</tool_call>";

std::optional<CalledTool> read_call(std::string_view text) {
  using Json = nlohmann::ordered_json;
  const Json j = parse_json_or_discard<Json>(text);
  if (!j.is_object()) return std::nullopt;
  const auto name = j.find("name"), arguments = j.find("arguments");
  if (name == j.end() || !name->is_string() || arguments == j.end()) return std::nullopt;
  return CalledTool{new_reply_id("call"), name->get<std::string>(),
                    arguments->is_string() ? arguments->get<std::string>() : arguments->dump()};
}

// The longest end of `text` that may become `tag`.
size_t begun(std::string_view text, std::string_view tag) {
  for (size_t n = std::min(text.size(), tag.size() - 1); n > 0; --n) {
    if (text.ends_with(tag.substr(0, n))) return n;
  }
  return 0;
}

}  // namespace

// The line ends behind a call are no words.
void ToolCallReader::say(Out& out, std::string text) {
  if (after_call_) {
    const size_t first = text.find_first_not_of(" \n");
    if (first == text.npos) return;
    text.erase(0, first);
    after_call_ = false;
  }
  out.text += text;
}

ToolCallReader::Out ToolCallReader::push(std::string_view piece) {
  if (!wanted_) return {std::string(piece), {}};
  Out out;
  held_ += piece;
  for (;;) {
    const std::string_view tag = inside_ ? kClose : kOpen;
    const size_t at = held_.find(tag);
    if (at == held_.npos) break;
    const std::string before = held_.substr(0, at);
    held_.erase(0, at + tag.size());
    if (!inside_) {
      say(out, before);
    } else if (auto call = read_call(before)) {
      ++calls_;
      after_call_ = true;
      out.calls.push_back(std::move(*call));
    } else {
      say(out, std::string(kOpen) + before + std::string(kClose));
    }
    inside_ = !inside_;
  }
  if (!inside_) {
    const size_t keep = begun(held_, kOpen);
    say(out, held_.substr(0, held_.size() - keep));
    held_.erase(0, held_.size() - keep);
  }
  return out;
}

ToolCallReader::Out ToolCallReader::flush() {
  Out out;
  if (inside_) out.text = std::string(kOpen);
  out.text += std::exchange(held_, {});
  inside_ = false;
  return out;
}

}  // namespace nibble
