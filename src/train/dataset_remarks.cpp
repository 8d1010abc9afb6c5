// SPDX-License-Identifier: MIT
#include "train/dataset_remarks.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "core/hash.h"

namespace nibble {
namespace {

template <class T>
uint64_t hash_span(std::span<const T> values, uint64_t seed) {
  return hash_bytes({reinterpret_cast<const char*>(values.data()), values.size_bytes()}, seed);
}

uint64_t hash_sample(const Sample& s) { return hash_span(s.ids, hash_span(s.flags, 1)); }

bool scored(uint8_t flags) { return (flags & kScored) != 0; }

}  // namespace

int64_t shared_samples(const Dataset& taught, const Dataset& held_out) {
  std::unordered_set<uint64_t> known;
  for (int64_t i = 0; i < taught.size(); ++i) known.insert(hash_sample(taught.sample(i)));
  int64_t n = 0;
  for (int64_t i = 0; i < held_out.size(); ++i) {
    n += known.contains(hash_sample(held_out.sample(i))) ? 1 : 0;
  }
  return n;
}

Contradictions contradictions(const Dataset& data) {
  struct Seen {
    uint64_t answer = 0;
    int64_t samples = 0;
    bool several = false;
  };
  std::unordered_map<uint64_t, Seen> prompts;
  Contradictions c;
  for (int64_t i = 0; i < data.size(); ++i) {
    const Sample s = data.sample(i);
    const auto begin = std::ranges::find_if(s.flags, scored);
    const auto end = std::find_if_not(begin, s.flags.end(), scored);
    const auto at = size_t(begin - s.flags.begin());
    // A sample whose beginning did not fit the window may have had another prompt.
    if (at == 0) continue;
    const auto prompt = s.ids.first(at);
    const uint64_t answer = hash_span(s.ids.subspan(at, size_t(end - begin)), 2);
    Seen& seen = prompts[hash_span(prompt, 3)];
    if (seen.samples++ == 0) {
      seen.answer = answer;
    } else if (!seen.several && seen.answer != answer) {
      seen.several = true;
      if (c.prompts++ == 0) c.prompt = prompt;
    }
  }
  for (const auto& [hash, seen] : prompts) c.samples += seen.several ? seen.samples : 0;
  return c;
}

}  // namespace nibble
