// SPDX-License-Identifier: MIT
// Memory with an owner (Buffer) and the bump allocator that hands out views of it (Arena).
#pragma once
#include <cstddef>
#include <functional>
#include <initializer_list>
#include <string>
#include <utility>

#include "core/tensor.h"

namespace nibble {

// Owns one allocation on one device. The backend that made it supplies the deleter.
class Buffer {
 public:
  using Deleter = std::function<void(std::byte*, size_t)>;
  Buffer() = default;
  Buffer(std::byte* data, size_t n_bytes, Deleter deleter)
      : data_(data), n_bytes_(n_bytes), deleter_(std::move(deleter)) {}
  ~Buffer() { reset(); }
  Buffer(Buffer&& o) noexcept { swap(o); }
  Buffer& operator=(Buffer&& o) noexcept {
    Buffer tmp(std::move(o));
    swap(tmp);
    return *this;
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  std::byte* data() const { return data_; }
  size_t bytes() const { return n_bytes_; }

 private:
  void reset() {
    if (data_ && deleter_) deleter_(data_, n_bytes_);
    data_ = nullptr;
    n_bytes_ = 0;
  }
  void swap(Buffer& o) noexcept {
    std::swap(data_, o.data_);
    std::swap(n_bytes_, o.n_bytes_);
    std::swap(deleter_, o.deleter_);
  }
  std::byte* data_ = nullptr;
  size_t n_bytes_ = 0;
  Deleter deleter_;
};

// Bump allocator over one Buffer, named for the memory report. Without a buffer it only measures:
// that dry run is how the buffer's size is found, so nothing is sized by hand.
class Arena {
 public:
  static constexpr size_t kAlignment = 256;  // covers SIMD, cache lines and GPU vector loads

  explicit Arena(std::string name) : name_(std::move(name)) {}  // measuring
  Arena(std::string name, Buffer buffer) : name_(std::move(name)), buffer_(std::move(buffer)) {}

  Tensor take(DType dtype, std::initializer_list<int64_t> shape);
  size_t mark() const { return top_; }
  void release(size_t mark) { top_ = mark; }
  size_t used() const { return top_; }
  size_t peak() const { return peak_; }
  size_t capacity() const { return buffer_.bytes(); }
  bool measuring() const { return buffer_.data() == nullptr; }
  const std::string& name() const { return name_; }

 private:
  std::string name_;
  Buffer buffer_;
  size_t top_ = 0, peak_ = 0;
};

}  // namespace nibble
