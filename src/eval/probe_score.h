// SPDX-License-Identifier: MIT
// What the replies to probes say about a model: scores by group and language, thresholds, signs of
// a model that falls apart.
#pragma once
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "eval/probe.h"

namespace nibble {

struct ProbeResult {
  const Probe* probe = nullptr;
  ProbeReply reply;
  std::string problem;                 // the rule that failed; empty: passed
  std::vector<Message> messages = {};  // the probe's, with what the model said in its own turns
  bool passed() const { return problem.empty(); }
};

struct Score {
  int64_t passed = 0, total = 0;
  double percent() const { return total > 0 ? 100.0 * double(passed) / double(total) : 0; }
  double standard_error() const;  // of it, in points, from the spread of the sample; 0 below two
};
struct GroupScore {
  std::string name;
  Score all;
  std::map<std::string, Score> languages;
};
struct ProbeScores {
  std::vector<GroupScore> groups;  // in the order of the probes
  Score all;
  const GroupScore* find(std::string_view group) const;
};
ProbeScores score_probes(std::span<const ProbeResult> results);

// At most `per_group` probes of each group (0: all), its languages in equal parts as far as they
// reach. Depends on the ids alone. In the order of the set.
std::vector<const Probe*> sample_probes(const ProbeSet& set, int64_t per_group);

// "95", "identity=98", "identity/zh=98", "retention=base-2": least scores in percent; base is the
// score of the baseline. A plain number holds for every group that is not named.
struct MinScore {
  std::string group, language;  // empty: every group; both languages
  bool from_base = false;
  double percent = 0;  // from_base: points above the baseline's, usually negative
};
std::vector<MinScore> parse_min_scores(std::string_view text);  // comma list; throws UsageError
// Throws UsageError for a group or language that no probe has, or where a baseline is needed.
void check_min_scores(std::span<const MinScore> wanted, const ProbeScores& of,
                      const ProbeScores* baseline);
// One line for each score that is too low: "identity/zh 91.0 %, expected 98.0 %".
std::vector<std::string> low_scores(const ProbeScores& scores, std::span<const MinScore> wanted,
                                    const ProbeScores* baseline);

constexpr std::string_view kIdentityGroup = "identity", kRetentionGroup = "retention";

// What a reply must hold to be the identity the probes of group "identity" ask for: all the
// contents (contains, contains_any, contains_any_word, equals) that the rules of one of them name.
class IdentityMarks {
 public:
  explicit IdentityMarks(const ProbeSet& set);
  bool in(const ProbeReply& reply) const;
  bool empty() const { return marks_.empty(); }

 private:
  std::vector<std::vector<ProbeRule>> marks_;
};

struct ReplySigns {
  double repeating = 0;        // share of replies that go in circles
  double identity = 0;         // share of replies of other groups that give the identity, wrongly
  std::string identity_group;  // the group where that share is largest, which is the one above
  int64_t not_finite = 0;      // replies without a finite logit
};
ReplySigns reply_signs(std::span<const ProbeResult> results, const IdentityMarks& marks);

}  // namespace nibble
