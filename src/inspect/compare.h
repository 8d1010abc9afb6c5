// SPDX-License-Identifier: MIT
// Compares two recordings of a run, tensor by tensor, and names the first that differs.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/recording_backend.h"
#include "formats/tensor_source.h"

namespace nibble {

struct SpecialValues {
  int64_t nan = 0, inf = 0;
};

// How tensor a differs from b, the reference. An infinity of the same sign in both counts as equal
// (masks); every other value that is not finite makes the difference infinite.
struct Difference {
  std::string name;
  std::vector<int64_t> shape;
  double relative_l2 = 0;  // ||a - b|| / ||b||
  double max_abs = 0;      // largest |a - b|
  int64_t max_at = 0;      // element of max_abs, row-major
  double cosine = 1;
  SpecialValues a, b;
  std::string problem;  // why nothing was compared ("only in the first"); empty: it was

  bool over(double tolerance) const { return !problem.empty() || !(relative_l2 <= tolerance); }
};

// Adds up a tensor's difference piece by piece.
class DifferenceSum {
 public:
  template <class T>
  void add(std::span<const T> a, std::span<const T> b) {
    for (size_t i = 0; i < a.size() && i < b.size(); ++i) add_one(double(a[i]), double(b[i]));
  }
  Difference result() const;

 private:
  void add_one(double a, double b);
  double diff_ = 0, aa_ = 0, bb_ = 0, ab_ = 0, max_ = 0;
  int64_t n_ = 0, max_at_ = 0, mismatched_ = 0;
  SpecialValues special_a_, special_b_;
};

Difference compare_values(std::span<const float> a, std::span<const float> b);

// Whether the run computes tensor x before tensor y: embedding, layers, final norm, logits, loss,
// then everything else by name. Files written by other programs are ordered by name or by type.
bool runs_before(std::string_view x, std::string_view y);

// Every tensor of either, in the order of the run.
std::vector<Difference> compare_recordings(const TensorSource& a, const TensorSource& b);
std::vector<Difference> compare_recordings(std::span<const Recorded> a,
                                           std::span<const Recorded> b);

// The first one over the tolerance; null when there is none.
const Difference* first_over(std::span<const Difference> differences, double tolerance);

}  // namespace nibble
