// SPDX-License-Identifier: MIT
// The common half of every container writer: the list of tensors is known first, then their bytes
// come in order, in any chunking. Nothing appears under the target name before finish().
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "formats/tensor_source.h"

namespace nibble {

// Of a file, where a model is written as several: what the hub's tools use.
inline constexpr uint64_t kDefaultShardBytes = 5'000'000'000;

class TensorWriter {
 public:
  virtual ~TensorWriter() = default;
  TensorWriter(const TensorWriter&) = delete;
  TensorWriter& operator=(const TensorWriter&) = delete;

  // Payload bytes of tensors() one after the other, as they are stored. Throws InternalError past
  // the last one.
  void append(std::span<const std::byte> bytes);
  // Checks that every payload is complete (InternalError otherwise), flushes, renames.
  void finish();

  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  uint64_t payload_bytes() const;  // of all tensors

 protected:
  // Fills n_bytes from dtype and shape; refuses duplicate or empty names and impossible shapes.
  explicit TensorWriter(std::vector<TensorInfo> tensors);

 private:
  virtual void do_begin(const TensorInfo& tensor) = 0;  // before its bytes, also when it has none
  virtual void do_write(std::span<const std::byte> bytes) = 0;
  virtual void do_finish() = 0;
  void begin_next();  // opens tensors until one lacks bytes

  std::vector<TensorInfo> tensors_;
  size_t begun_ = 0;      // tensors opened so far
  uint64_t missing_ = 0;  // bytes the open tensor still lacks
  bool finished_ = false;
};

}  // namespace nibble
