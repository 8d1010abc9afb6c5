// SPDX-License-Identifier: MIT
#include "formats/tensor_writer.h"

#include <algorithm>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "core/error.h"
#include "formats/checks.h"

namespace nibble {

TensorWriter::TensorWriter(std::vector<TensorInfo> tensors) : tensors_(std::move(tensors)) {
  std::unordered_set<std::string_view> names;
  for (TensorInfo& t : tensors_) {
    if (t.name.empty() || t.name.size() > kMaxNameBytes || !is_utf8(t.name)) {
      throw_internal("a tensor to write has no usable name ({} bytes)", t.name.size());
    }
    if (!names.insert(t.name).second) throw_internal("tensor '{}' is to be written twice", t.name);
    const auto n_bytes = shape_bytes(t.shape, t.dtype);
    if (!n_bytes || t.shape.size() > kMaxFileRank) {
      throw_internal("tensor '{}': {} cannot be stored", t.name, t.describe());
    }
    t.n_bytes = *n_bytes;
  }
}

uint64_t TensorWriter::payload_bytes() const {
  uint64_t n = 0;
  for (const TensorInfo& t : tensors_) n += t.stored_bytes();
  return n;
}

void TensorWriter::begin_next() {
  while (missing_ == 0 && begun_ < tensors_.size()) {
    const TensorInfo& t = tensors_[begun_++];
    do_begin(t);
    missing_ = t.stored_bytes();
  }
}

void TensorWriter::append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    begin_next();
    if (missing_ == 0) throw_internal("{} bytes after the last tensor", bytes.size());
    const size_t n = size_t(std::min<uint64_t>(missing_, bytes.size()));
    do_write(bytes.first(n));
    missing_ -= n;
    bytes = bytes.subspan(n);
  }
}

void TensorWriter::finish() {
  if (finished_) throw_internal("a weight file is finished twice");
  begin_next();
  if (missing_ != 0) {
    throw_internal("tensor '{}' lacks {} bytes", tensors_[begun_ - 1].name, missing_);
  }
  finished_ = true;
  do_finish();
}

}  // namespace nibble
