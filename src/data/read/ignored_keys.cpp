// SPDX-License-Identifier: MIT
#include "data/read/ignored_keys.h"

#include <fmt/format.h>

#include <algorithm>

namespace nibble {

void IgnoredKeys::add(const DataRecord& record) {
  constexpr size_t kMost = 1000;  // a file may name its keys as it likes
  for (const std::string& name : record.ignored) {
    const auto at = std::ranges::find(keys_, name, &Key::name);
    if (at != keys_.end()) {
      ++at->lines;
    } else if (keys_.size() < kMost) {
      keys_.push_back({name, 1});
    }
  }
}

std::string IgnoredKeys::text() const {
  constexpr size_t kShown = 8;
  std::string out = "keys that say nothing here are passed over (--strict-data refuses them):";
  for (size_t i = 0; i < std::min(kShown, keys_.size()); ++i) {
    out += fmt::format("{} \"{}\" in {} {}", i > 0 ? "," : "", keys_[i].name, keys_[i].lines,
                       keys_[i].lines == 1 ? "line" : "lines");
  }
  if (keys_.size() > kShown) out += fmt::format(", and {} more", keys_.size() - kShown);
  return out;
}

}  // namespace nibble
