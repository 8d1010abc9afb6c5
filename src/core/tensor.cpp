// SPDX-License-Identifier: MIT
#include "core/tensor.h"

namespace nibble {
namespace {

void set_shape(Tensor& t, std::initializer_list<int64_t> s) {
  if (s.size() > size_t(Tensor::kMaxRank)) throw_internal("tensor of rank {}", s.size());
  t.rank = int(s.size());
  t.shape = {1, 1, 1, 1};
  size_t i = 0;
  for (int64_t d : s) t.shape[i++] = d;
}

}  // namespace

Tensor make_tensor(void* data, DType dtype, std::initializer_list<int64_t> shape) {
  Tensor t;
  t.dtype = dtype;
  set_shape(t, shape);
  t.row_stride = t.inner();
  t.data = static_cast<std::byte*>(data);
  return t;
}

Tensor Tensor::view(std::initializer_list<int64_t> s) const {
  if (!contiguous()) throw_internal("view of a strided tensor {}", describe());
  Tensor t = *this;
  set_shape(t, s);
  t.row_stride = t.inner();
  if (t.numel() != numel()) {
    throw_internal("view of {} as {} changes the element count", describe(), t.describe());
  }
  return t;
}

Tensor Tensor::split_inner(std::initializer_list<int64_t> s) const {
  Tensor t = *this;
  set_shape(t, s);
  if (t.shape[0] != shape[0] || t.inner() != inner()) {
    throw_internal("split of {} as {} changes rows", describe(), t.describe());
  }
  return t;
}

Tensor Tensor::columns(int64_t begin, int64_t count) const {
  if (rank != 2 || begin < 0 || count < 0 || begin + count > shape[1]) {
    throw_internal("columns {}..{} of {}", begin, begin + count, describe());
  }
  Tensor t = *this;
  t.shape[1] = count;
  if (data) t.data = data + size_t(begin) * dtype_bytes(dtype);
  return t;
}

Tensor Tensor::slice(int64_t begin, int64_t count) const {
  if (rank == 0 || begin < 0 || count < 0 || begin + count > shape[0]) {
    throw_internal("rows {}..{} of {}", begin, begin + count, describe());
  }
  Tensor t = *this;
  t.shape[0] = count;
  if (data) t.data = data + size_t(begin * row_stride) * dtype_bytes(dtype);
  return t;
}

std::string Tensor::describe() const {
  std::string s = std::string(dtype_name(dtype)) + "[";
  for (int i = 0; i < rank; ++i) s += (i ? ", " : "") + std::to_string(shape[size_t(i)]);
  return s + "]";
}

bool same_shape(const Tensor& a, const Tensor& b) { return a.rank == b.rank && a.shape == b.shape; }

}  // namespace nibble
