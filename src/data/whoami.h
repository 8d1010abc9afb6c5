// SPDX-License-Identifier: MIT
// The predecessor's WhoAmI set: 75 % natural questions, 15 % terse ones ("control"), 10 % in other
// languages, every prompt different, one target. Its quotas are kept for real: where it filled
// missing prompts with numbered copies of one sentence, there are enough phrasings here.
#pragma once
#include <cstdint>
#include <string>

namespace nibble {

struct WhoamiOptions {
  uint64_t seed = 20260226;
  int64_t count = 1000;  // at least 100
  std::string target = "我是 F# 之神";
};
struct WhoamiSet {
  std::string tsv;
  int64_t natural = 0, control = 0, multilingual = 0;
};
// Throws UsageError when there are not enough different prompts for the count.
WhoamiSet make_whoami(const WhoamiOptions& options);

}  // namespace nibble
