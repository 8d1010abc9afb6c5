// SPDX-License-Identifier: MIT
// What of a model is to stay as it is, as a run is asked for it: rows that are kept, and whose
// words they are compared with. docs/training.md explains it.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace nibble {

// Which samples of a run are kept: so many millionths of them, spread evenly. Whole numbers, so
// that a place in the run is enough to know what was taken before it.
class KeepShare {
 public:
  KeepShare() = default;  // none
  explicit KeepShare(double share) : millionths_(uint64_t(share * kMillion + 0.5)) {}

  uint64_t kept_before(uint64_t position) const {
    return position / kMillion * millionths_ + position % kMillion * millionths_ / kMillion;
  }
  bool kept(uint64_t position) const { return kept_before(position + 1) > kept_before(position); }
  // The most of `samples` neighbours that are kept, or are not.
  int64_t most_kept(int64_t samples) const { return most(samples, millionths_); }
  int64_t most_taught(int64_t samples) const { return most(samples, kMillion - millionths_); }
  double share() const { return double(millionths_) / double(kMillion); }

 private:
  static constexpr uint64_t kMillion = 1000000;
  static int64_t most(int64_t samples, uint64_t millionths) {
    return int64_t((uint64_t(samples) * millionths + kMillion - 1) / kMillion);
  }
  uint64_t millionths_ = 0;
};

struct KeepChoices {
  std::vector<std::string> sources;  // files, or "self:TOKENS"; they take turns
  std::filesystem::path teacher;     // empty: the model as it is before the first step
  double weight = 1;
  std::optional<double> share;  // unset: half, or all where nothing is taught

  bool used() const { return !sources.empty(); }
  // Of a run that teaches something beside it, or nothing.
  KeepShare share_of(bool teaches) const;
  // Throws UsageError for what does not go together.
  void check(bool teaches) const;
};

}  // namespace nibble
