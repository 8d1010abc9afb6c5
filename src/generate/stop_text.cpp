// SPDX-License-Identifier: MIT
#include "generate/stop_text.h"

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace nibble {

StopText::StopText(std::vector<std::string> stops) : stops_(std::move(stops)) {
  for (const std::string& s : stops_) {
    if (s.empty()) throw_usage("a text that ends a reply cannot be empty (--stop)");
  }
}

std::string StopText::push(std::string_view piece) {
  if (stopped_) return {};
  held_ += piece;
  // The one that is complete first ends the reply, so that it does not matter how the pieces fall.
  size_t begin = std::string::npos, end = std::string::npos;
  for (const std::string& s : stops_) {
    const size_t at = held_.find(s);
    if (at == std::string::npos || at + s.size() > end) continue;
    begin = at + s.size() < end ? at : std::min(begin, at);
    end = at + s.size();
  }
  if (end != std::string::npos) {
    stopped_ = true;
    held_.resize(begin);
    return std::move(held_);
  }
  // The longest end of the text that is the beginning of a stop.
  size_t keep = 0;
  for (const std::string& s : stops_) {
    for (size_t n = std::min(s.size() - 1, held_.size()); n > keep; --n) {
      if (held_.ends_with(std::string_view(s).substr(0, n))) keep = n;
    }
  }
  std::string shown = held_.substr(0, held_.size() - keep);
  held_.erase(0, shown.size());
  return shown;
}

std::string StopText::flush() { return stopped_ ? std::string() : std::exchange(held_, {}); }

}  // namespace nibble
