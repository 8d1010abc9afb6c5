// SPDX-License-Identifier: MIT
// Private to convert: does the jobs of a plan, one after the other, in pieces of rows.
#pragma once
#include <algorithm>
#include <map>
#include <vector>

#include "convert/convert_plan.h"
#include "convert/raw_cast.h"
#include "core/progress.h"
#include "formats/tensor_writer.h"

namespace nibble {

class Converter {
 public:
  Converter(const TensorSource& source, TensorWriter& writer, ThreadPool& pool,
            const ConvertSettings& settings, ConvertSummary& summary);
  void run(const ConvertJob& job);

 private:
  // Elements held at a time, and per piece of parallel work.
  static constexpr int64_t kChunk = 4 << 20, kPiece = 1 << 17;
  static int64_t rows_of(int64_t elements, int64_t cols) {
    return std::max<int64_t>(1, elements / std::max<int64_t>(1, cols));
  }
  template <class T>
  static std::span<const std::byte> bytes_of(const std::vector<T>& v, size_t count) {
    return std::as_bytes(std::span(v).first(count));
  }

  // Calls body(piece, first row, rows, thread) for pieces of rows [begin, begin + count).
  template <class Body>
  void for_pieces(int64_t begin, int64_t count, int64_t cols, Body&& body) {
    const int64_t rows = rows_of(kPiece, cols), pieces = (count + rows - 1) / rows;
    pool_.parallel_for(pieces, 1, [&](int64_t first, int64_t last, int thread) {
      for (int64_t p = first; p < last; ++p) {
        body(p, begin + p * rows, std::min(rows, count - p * rows), size_t(thread));
      }
    });
  }
  static size_t most_pieces(int64_t rows, int64_t cols) {
    return size_t(rows / rows_of(kPiece, cols) + 1);
  }

  void append(std::span<const std::byte> bytes);
  float* scratch(std::vector<std::vector<float>>& of, size_t thread, int64_t n);
  void note_not_finite(const ConvertJob& job, DType type, std::span<const std::byte> bytes,
                       uint64_t first);
  void add_loss(const ConvertJob& job, const std::vector<CastLoss>& losses);
  float checked_maximum(const ConvertJob& job, const float* x, int64_t begin, int64_t rows);
  void read_values(const ConvertJob& job, int64_t begin, int64_t rows, float* x);
  float maximum_of(const ConvertJob& job, const LogicalTensor& t);
  float global_scale_of(const ConvertJob& job);
  void append_scales(const ConvertJob& job, float global);
  void note_too_large(const ConvertJob& job, float amax);

  void copy(const ConvertJob& job);
  void cast(const ConvertJob& job);
  void quantise(const ConvertJob& job);
  void dequantise(const ConvertJob& job);
  void copy_packed(const ConvertJob& job);
  // Into the blocks of a GGUF: converter_blocks.cpp.
  void encode(const ConvertJob& job);
  void join(const ConvertJob& job);
  void given(const ConvertJob& job);

  const TensorSource& source_;
  TensorWriter& writer_;
  ThreadPool& pool_;
  ScaleRule rule_;
  const Nvfp4Form& form_;
  std::map<const LogicalTensor*, float> maxima_;  // of groups, by their first
  ConvertSummary& summary_;
  Progress progress_;
  std::vector<std::vector<float>> x_, y_;  // per thread
};

}  // namespace nibble
