// SPDX-License-Identifier: MIT
// A typed, non-owning view of memory on some device. Copying it copies the view, never the data.
#pragma once
#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "core/dtype.h"
#include "core/error.h"

namespace nibble {

// Row-major, up to 4 dimensions. Only the outermost dimension may be strided (a column slice of
// a wider matrix); everything inside one index of it is contiguous.
struct Tensor {
  static constexpr int kMaxRank = 4;

  DType dtype = DType::f32;
  int rank = 0;  // 0: an empty optional argument
  std::array<int64_t, kMaxRank> shape{1, 1, 1, 1};
  int64_t row_stride = 0;     // elements between two indices of dimension 0
  std::byte* data = nullptr;  // null while measuring (NullBackend)

  explicit operator bool() const { return rank != 0; }
  int64_t numel() const { return shape[0] * shape[1] * shape[2] * shape[3]; }
  int64_t dim(int i) const { return shape[size_t(i)]; }
  int64_t inner() const {
    return shape[1] * shape[2] * shape[3];
  }  // elements of one index of dim 0
  int64_t cols() const { return rank == 0 ? 0 : shape[size_t(rank - 1)]; }
  int64_t rows() const { return cols() == 0 ? 0 : numel() / cols(); }
  size_t bytes() const { return size_t(numel()) * dtype_bytes(dtype); }
  bool contiguous() const { return shape[0] <= 1 || row_stride == inner(); }

  template <class T>
  T* as() const {
    if (dtype != dtype_of<T>) {
      throw_internal("tensor {} read as {}", describe(), dtype_name(dtype_of<T>));
    }
    return reinterpret_cast<T*>(data);
  }
  // Pointer to index i of dimension 0.
  template <class T>
  T* row(int64_t i) const {
    return as<T>() + i * row_stride;
  }

  // The same elements under another shape; needs a contiguous view.
  Tensor view(std::initializer_list<int64_t> s) const;
  // Keeps dimension 0 (and its stride) and splits the rest: [n, a*b] -> [n, a, b].
  Tensor split_inner(std::initializer_list<int64_t> s) const;
  // Columns [begin, begin + count) of a 2-D view.
  Tensor columns(int64_t begin, int64_t count) const;
  // Indices [begin, begin + count) of dimension 0.
  Tensor slice(int64_t begin, int64_t count) const;

  std::string describe() const;  // "f32[2, 3]"
};

Tensor make_tensor(void* data, DType dtype, std::initializer_list<int64_t> shape);
bool same_shape(const Tensor& a, const Tensor& b);

}  // namespace nibble
