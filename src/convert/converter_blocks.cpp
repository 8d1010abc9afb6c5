// SPDX-License-Identifier: MIT
// Tensors of a GGUF that are blocks.
#include <atomic>

#include "convert/converter.h"
#include "core/error.h"
#include "formats/gguf/encode_blocks.h"
#include "quant/scale_shift.h"

namespace nibble {

void Converter::encode(const ConvertJob& job) {
  const LogicalTensor& t = *job.from;
  const BlockType& type = *job.blocks;
  const int64_t cols = t.cols, per_row = cols / type.elements;
  const int64_t chunk = std::min(t.rows, rows_of(kChunk, cols));
  std::vector<uint8_t> blocks(size_t(chunk * per_row * type.bytes));
  QuantError total;
  for (int64_t at = 0; at < t.rows; at += chunk) {
    const int64_t count = std::min(chunk, t.rows - at);
    std::vector<QuantError> errors(most_pieces(count, cols));
    for_pieces(at, count, cols, [&](int64_t piece, int64_t begin, int64_t n, size_t thread) {
      float* const x = scratch(x_, thread, n * cols);
      float* const y = scratch(y_, thread, n * cols);
      uint8_t* const out = blocks.data() + (begin - at) * per_row * type.bytes;
      read_values(job, begin, n, x);
      if (checked_maximum(job, x, begin, n) > most_of_blocks(type)) {
        throw_format("tensor '{}' holds values that {} cannot: use --quant none", job.name,
                     type.name);
      }
      encode_blocks(type, x, n * per_row, out);
      type.expand(out, n * per_row, y);
      errors[size_t(piece)].add({x, size_t(n * cols)}, {y, size_t(n * cols)});
    });
    for (const QuantError& e : errors) total.add(e);  // in order: the sum is the same every time
    append(bytes_of(blocks, size_t(count * per_row * type.bytes)));
  }
  summary_.error.add(total);
  ++summary_.quantised;
}

// NVFP4, as it lies there or made here.
void Converter::join(const ConvertJob& job) {
  const LogicalTensor& t = *job.from;
  const int64_t cols = t.cols, per_row = cols / kNvfp4Block;
  const int64_t joined = cols / kGgufNvfp4Elements, bytes = job.blocks->bytes;
  const float stored = t.packed() ? read_global_scale(source_, t) : 1.0f;
  const float g = !job.two_level ? 1.0f : t.packed() ? stored : global_scale_of(job);
  const int64_t chunk = std::min(t.rows, rows_of(kChunk, cols));
  std::vector<uint8_t> blocks(size_t(chunk * joined * bytes));
  float amax = 0;
  for (int64_t at = 0; at < t.rows; at += chunk) {
    const int64_t count = std::min(chunk, t.rows - at);
    std::vector<QuantError> errors(most_pieces(count, cols));
    std::vector<float> maxima(errors.size());
    for_pieces(at, count, cols, [&](int64_t piece, int64_t begin, int64_t n, size_t thread) {
      std::vector<uint8_t> codes(size_t(n * cols / 2)), scales(size_t(n * per_row));
      if (t.packed()) {
        read_nvfp4_rows(source_, t, begin, n, codes.data(), scales.data());
        if (g != stored) shift_scales(scales, exponent_of(stored / g));
      } else {
        float* const x = scratch(x_, thread, n * cols);
        float* const y = scratch(y_, thread, n * cols);
        read_values(job, begin, n, x);
        maxima[size_t(piece)] = checked_maximum(job, x, begin, n);
        quantize_rows(x, n, cols, rule_, g, codes.data(), scales.data());
        dequantize_rows(codes.data(), scales.data(), n, cols, g, y);
        errors[size_t(piece)].add({x, size_t(n * cols)}, {y, size_t(n * cols)});
      }
      join_nvfp4_blocks(codes.data(), scales.data(), n * joined,
                        blocks.data() + (begin - at) * joined * bytes);
    });
    for (const QuantError& e : errors) summary_.error.add(e);
    amax = std::max(amax, *std::ranges::max_element(maxima));
    append(bytes_of(blocks, size_t(count * joined * bytes)));
  }
  if (job.two_level) append(std::as_bytes(std::span(&g, 1)));
  note_too_large(job, amax);
  ++(t.packed() ? summary_.copied : summary_.quantised);
}

void Converter::given(const ConvertJob& job) {
  append(std::as_bytes(std::span(job.values)));
  ++summary_.copied;
}

}  // namespace nibble
