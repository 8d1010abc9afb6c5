// SPDX-License-Identifier: MIT
// Windows of text through a model, several in a pass, with the tokens each row is to predict.
#pragma once
#include <functional>
#include <span>
#include <vector>

#include "eval/damage/packed_pass.h"
#include "eval/text_loss.h"

namespace nibble {

struct PredictedToken {
  int64_t window = 0, at = 0;  // ids[window][at]
  int32_t id = 0;
};

class TextPasses {
 public:
  // Of the windows [begin, end). `windows` must outlive this.
  TextPasses(const TextReader& reader, const TextWindows& windows, int64_t begin, int64_t end);
  // The next windows; false when there are none left.
  bool next();
  int64_t done() const { return next_ - begin_; }  // windows
  // The tokens that are predicted in this pass, as many at a time as there is room for logits.
  void each_piece(
      const std::function<void(int64_t begin, std::span<const PredictedToken>)>& body) const;
  std::vector<RowFigures> figures(int64_t begin, std::span<const PredictedToken> predicted);
  // Of the tokens both were asked for last; see PackedPass.
  std::vector<double> divergence_from(const TextPasses& base) {
    return pass_.divergence_from(base.pass_);
  }

 private:
  const TextWindows& windows_;
  PackedPass pass_;
  int64_t begin_, next_, end_;
  std::vector<PredictedToken> predicted_;
};

// Sums by window, and the mean of all tokens with its standard error. Several threads may add, each
// to windows of its own.
class WindowSums {
 public:
  explicit WindowSums(const TextWindows& windows);
  void add(int64_t window, double value) { sums_[size_t(window)] += value; }
  TextLoss result() const;

 private:
  const TextWindows& windows_;
  std::vector<double> sums_;
};

}  // namespace nibble
