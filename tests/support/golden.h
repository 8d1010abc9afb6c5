// SPDX-License-Identifier: MIT
// The committed reference vectors (tests/golden) and how they are compared: by the relative L2
// norm of a whole tensor, never element by element.
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "core/error.h"
#include "formats/tensor_source.h"
#include "support/paths.h"

namespace nibble::test {

inline std::filesystem::path golden_dir() {
  return std::filesystem::path(kSourceDir) / "tests" / "golden";
}

template <class T>
std::vector<T> read_all(const TensorSource& source, const std::string& name) {
  const TensorInfo& info = source.at(name);
  if (info.dtype != dtype_of<T>) throw_internal("golden {} has another type", name);
  std::vector<T> out(size_t(info.numel()));
  source.read(info, 0, std::as_writable_bytes(std::span(out)));
  return out;
}

// ||a - b|| / ||b||
template <class A, class B>
double relative_l2(const std::vector<A>& a, const std::vector<B>& b) {
  EXPECT_EQ(a.size(), b.size());
  double diff = 0, norm = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const double d = double(a[i]) - double(b[i]);
    diff += d * d;
    norm += double(b[i]) * double(b[i]);
  }
  return std::sqrt(diff / norm);
}

template <class A, class B>
double cosine(const std::vector<A>& a, const std::vector<B>& b) {
  double ab = 0, aa = 0, bb = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    ab += double(a[i]) * double(b[i]);
    aa += double(a[i]) * double(a[i]);
    bb += double(b[i]) * double(b[i]);
  }
  return ab / std::sqrt(aa * bb);
}

}  // namespace nibble::test
