// SPDX-License-Identifier: MIT
// A curve of bounded size, however many points it is given: when it is full, every second one
// goes, and from then on only every second one comes in.
#pragma once
#include <cstdint>
#include <vector>

namespace nibble {

class ThinnedSeries {
 public:
  explicit ThinnedSeries(size_t most = 4096) : most_(most) {
    x_.reserve(most);
    y_.reserve(most);
  }

  void add(double x, double y) {
    if (seen_++ % stride_ != 0) return;
    if (x_.size() == most_) {
      halve(x_);
      halve(y_);
      stride_ *= 2;
      if ((seen_ - 1) % stride_ != 0) return;
    }
    x_.push_back(x);
    y_.push_back(y);
  }
  const std::vector<double>& x() const { return x_; }
  const std::vector<double>& y() const { return y_; }
  bool empty() const { return x_.empty(); }

 private:
  static void halve(std::vector<double>& v) {
    size_t kept = 0;
    for (size_t i = 0; i < v.size(); i += 2) v[kept++] = v[i];
    v.resize(kept);
  }
  size_t most_;
  uint64_t seen_ = 0, stride_ = 1;
  std::vector<double> x_, y_;
};

}  // namespace nibble
