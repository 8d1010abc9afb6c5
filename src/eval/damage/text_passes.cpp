// SPDX-License-Identifier: MIT
#include "eval/damage/text_passes.h"

#include <algorithm>
#include <cmath>

namespace nibble {
namespace {

// Tokens of a pass: enough that each weight is read for many, few enough for a small machine.
constexpr int64_t kPassTokens = 2048;

int64_t slots_for(const TextWindows& windows) {
  size_t longest = 1;
  for (const auto& w : windows.ids) longest = std::max(longest, w.size());
  return std::max(kPassTokens, int64_t(longest));
}

}  // namespace

TextPasses::TextPasses(const TextReader& r, const TextWindows& windows, int64_t begin, int64_t end)
    : windows_(windows),
      pass_(r.backend, r.model, r.options, slots_for(windows)),
      begin_(begin),
      next_(begin),
      end_(end) {}

bool TextPasses::next() {
  if (next_ == end_) return false;
  predicted_.clear();
  std::vector<std::vector<int32_t>> ids;
  std::vector<PassSequence> sequences;
  int64_t used = 0;
  for (; next_ < end_; ++next_) {
    const std::vector<int64_t>& window = windows_.ids[size_t(next_)];
    const auto n = int64_t(window.size());
    if (used > 0 && used + n > pass_.slots()) break;
    ids.emplace_back();
    for (const int64_t id : window) {
      ids.back().push_back(id < 0 || id > INT32_MAX ? -1 : int32_t(id));  // refused by run()
    }
    for (int64_t at = 1; at < n; ++at) {
      predicted_.push_back({next_, at, ids.back()[size_t(at)]});
    }
    PassSequence s;
    s.slot = used;
    s.wanted = n - 1;
    sequences.push_back(s);
    used += n;
  }
  for (size_t i = 0; i < ids.size(); ++i) sequences[i].ids = ids[i];
  pass_.run(sequences);
  return true;
}

void TextPasses::each_piece(
    const std::function<void(int64_t, std::span<const PredictedToken>)>& body) const {
  const std::span all(predicted_);
  for (size_t begin = 0; begin < all.size(); begin += size_t(pass_.piece())) {
    const size_t count = std::min(size_t(pass_.piece()), all.size() - begin);
    body(int64_t(begin), all.subspan(begin, count));
  }
}

std::vector<RowFigures> TextPasses::figures(int64_t begin,
                                            std::span<const PredictedToken> predicted) {
  std::vector<int32_t> targets;
  for (const PredictedToken& p : predicted) targets.push_back(p.id);
  return pass_.figures(begin, targets);
}

WindowSums::WindowSums(const TextWindows& windows)
    : windows_(windows), sums_(windows.ids.size(), 0.0) {}

TextLoss WindowSums::result() const {
  TextLoss out;
  double sum = 0;
  for (size_t w = 0; w < sums_.size(); ++w) {
    const auto scored = int64_t(windows_.ids[w].size()) - 1;
    out.windows.push_back(sums_[w] / double(scored));
    out.tokens += scored;
    sum += sums_[w];
  }
  out.loss = sum / double(out.tokens);
  const double n = double(out.windows.size());
  if (n > 1) {
    double spread = 0;
    for (const double l : out.windows) spread += (l - out.loss) * (l - out.loss);
    out.standard_error = std::sqrt(spread / (n - 1) / n);
  }
  return out;
}

}  // namespace nibble
