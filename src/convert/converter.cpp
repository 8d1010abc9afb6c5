// SPDX-License-Identifier: MIT
#include "convert/converter.h"

#include <cmath>

#include "core/error.h"
#include "core/finite.h"
#include "core/half.h"
#include "quant/codec.h"
#include "quant/scale_shift.h"

namespace nibble {

using Kind = ConvertJob::Kind;

Converter::Converter(const TensorSource& source, TensorWriter& writer, ThreadPool& pool,
                     const ConvertSettings& settings, ConvertSummary& summary)
    : source_(source),
      writer_(writer),
      pool_(pool),
      rule_(settings.rule),
      form_(nvfp4_form(settings.names)),
      summary_(summary),
      progress_("convert", writer.payload_bytes()),
      x_(size_t(pool.size())),
      y_(size_t(pool.size())) {}

void Converter::run(const ConvertJob& job) {
  switch (job.kind) {
    case Kind::copy: return copy(job);
    case Kind::cast: return cast(job);
    case Kind::quantise: return quantise(job);
    case Kind::dequantise: return dequantise(job);
    case Kind::copy_packed: return copy_packed(job);
    case Kind::encode: return encode(job);
    case Kind::join: return join(job);
    case Kind::given: return given(job);
  }
}

void Converter::note_too_large(const ConvertJob& job, float amax) {
  if (job.two_level || amax <= kE4m3Max * kE2m1Max) return;
  summary_.notes.push_back(fmt::format(
      "tensor '{}' has values up to {}, single-level NVFP4 ends at {}: --scales two-level holds "
      "them",
      job.name, amax, kE4m3Max * kE2m1Max));
}

void Converter::append(std::span<const std::byte> bytes) {
  writer_.append(bytes);
  progress_.advance(bytes.size());
}

float* Converter::scratch(std::vector<std::vector<float>>& of, size_t thread, int64_t n) {
  if (of[thread].size() < size_t(n)) of[thread].resize(size_t(n));
  return of[thread].data();
}

// One line a tensor: the first place is enough to look at.
void Converter::note_not_finite(const ConvertJob& job, DType type, std::span<const std::byte> bytes,
                                uint64_t first) {
  const std::string begin = fmt::format("tensor '{}' ", job.name);
  if (!summary_.damage.empty() && summary_.damage.back().starts_with(begin)) return;
  if (const auto at = first_not_finite(type, bytes)) {
    summary_.damage.push_back(
        fmt::format("{}holds NaN or an infinity as element {}", begin, first + *at));
  }
}

void Converter::copy(const ConvertJob& job) {
  const TensorInfo& raw = *job.from->raw;
  std::vector<std::byte> bytes(size_t(std::min<uint64_t>(raw.n_bytes, uint64_t(kChunk) * 4)));
  for (uint64_t at = 0; at < raw.n_bytes; at += bytes.size()) {
    const auto part =
        std::span(bytes).first(size_t(std::min<uint64_t>(bytes.size(), raw.n_bytes - at)));
    source_.read(raw, at, part);
    if (raw.dtype != DType::f8_e4m3)
      note_not_finite(job, raw.dtype, part, at / std::max<size_t>(1, dtype_bytes(raw.dtype)));
    append(part);
  }
  ++summary_.copied;
}

void Converter::add_loss(const ConvertJob& job, const std::vector<CastLoss>& losses) {
  for (const CastLoss& l : losses) {
    if (l.overflow > 0) {
      throw_format("tensor '{}' holds values that {} cannot: use --dtype fp32{}", job.name,
                   dtype_name(job.dtype), job.dtype == DType::f16 ? " or bf16" : "");
    }
    summary_.rounded += l.inexact;
  }
}

void Converter::cast(const ConvertJob& job) {
  LogicalTensor flat = *job.from;  // one element a row: pieces of any size, whatever the shape
  flat.rows = job.from->numel();
  flat.cols = 1;
  const size_t width = dtype_bytes(job.dtype);
  std::vector<std::byte> bytes(size_t(std::min(flat.rows, kChunk)) * width);
  for (int64_t at = 0; at < flat.rows; at += kChunk) {
    const int64_t count = std::min(kChunk, flat.rows - at);
    std::vector<CastLoss> losses(size_t(count / kPiece + 1));
    for_pieces(at, count, 1, [&](int64_t piece, int64_t begin, int64_t n, size_t thread) {
      float* const x = scratch(x_, thread, n);
      read_rows_f32(source_, flat, begin, n, x);
      losses[size_t(piece)] = cast_from_f32(x, n, job.dtype, &bytes[size_t(begin - at) * width]);
    });
    add_loss(job, losses);
    const auto made = std::span(bytes).first(size_t(count) * width);
    note_not_finite(job, job.dtype, made, uint64_t(at));
    append(made);
  }
  ++summary_.cast;
}

float Converter::checked_maximum(const ConvertJob& job, const float* x, int64_t begin,
                                 int64_t rows) {
  const float amax = absolute_maximum(x, rows * job.from->cols);
  if (!std::isfinite(amax)) {
    throw_format("tensor '{}': NaN or infinity in rows {} to {}; NVFP4 cannot hold them", job.name,
                 begin, begin + rows - 1);
  }
  return amax;
}

void Converter::read_values(const ConvertJob& job, int64_t begin, int64_t rows, float* x) {
  const LogicalTensor& t = *job.from;
  if (t.packed()) {
    std::vector<uint8_t> codes(size_t(rows * t.cols / 2)),
        scales(size_t(rows * t.cols / kNvfp4Block));
    read_nvfp4_rows(source_, t, begin, rows, codes.data(), scales.data());
    return dequantize_rows(codes.data(), scales.data(), rows, t.cols, read_global_scale(source_, t),
                           x);
  }
  read_rows_f32(source_, t, begin, rows, x);
  if (!job.embed_dtype) return;
  for (int64_t i = 0; i < rows * t.cols; ++i) {
    if (*job.embed_dtype == DType::f16) x[i] = to_float(to_f16(x[i]));
    x[i] = to_float(to_bf16(x[i]));
  }
}

float Converter::maximum_of(const ConvertJob& job, const LogicalTensor& t) {
  std::vector<float> maxima(most_pieces(t.rows, t.cols));
  ConvertJob one = job;
  one.from = &t;
  for_pieces(0, t.rows, t.cols, [&](int64_t piece, int64_t begin, int64_t n, size_t thread) {
    float* const x = scratch(x_, thread, n * t.cols);
    read_values(one, begin, n, x);
    maxima[size_t(piece)] = checked_maximum(one, x, begin, n);
  });
  return *std::ranges::max_element(maxima);
}

float Converter::global_scale_of(const ConvertJob& job) {
  if (job.group.empty()) return two_level_scale(maximum_of(job, *job.from));
  const auto [at, is_new] = maxima_.emplace(job.group.front(), 0.0f);
  if (is_new) {
    for (const LogicalTensor* t : job.group) at->second = std::max(at->second, maximum_of(job, *t));
  }
  // A power of two, which costs none of the scales' precision: every program then has these values
  // to the bit, whichever of them it multiplies first.
  int exponent = 0;
  const float fraction = std::frexp(two_level_scale(at->second), &exponent);
  return std::ldexp(1.0f, fraction == 0.5f ? exponent - 1 : exponent);
}

// What follows the scales of blocks.
void Converter::append_scales(const ConvertJob& job, float global) {
  const auto put = [&](float x) {
    const float stored = form_.divisor ? 1 / x : x;
    append(std::as_bytes(std::span(&stored, 1)));
  };
  if (job.two_level) put(global);
  if (job.input_scale > 0) put(job.input_scale);
}

void Converter::quantise(const ConvertJob& job) {
  const LogicalTensor& t = *job.from;
  const int64_t cols = t.cols, per_row = cols / kNvfp4Block;
  const float g = job.two_level ? global_scale_of(job) : 1.0f;
  // Codes are written as they come; the scales of the whole tensor follow them in the file.
  const int64_t chunk = std::min(t.rows, rows_of(kChunk, cols));
  std::vector<uint8_t> codes(size_t(chunk * cols / 2)), scales(size_t(t.rows * per_row));
  float amax = 0;
  QuantError total;
  for (int64_t at = 0; at < t.rows; at += chunk) {
    const int64_t count = std::min(chunk, t.rows - at);
    std::vector<QuantError> errors(most_pieces(count, cols));
    std::vector<float> maxima(errors.size());
    for_pieces(at, count, cols, [&](int64_t piece, int64_t begin, int64_t n, size_t thread) {
      float* const x = scratch(x_, thread, n * cols);
      float* const y = scratch(y_, thread, n * cols);
      uint8_t* const c = codes.data() + (begin - at) * cols / 2;
      uint8_t* const s = scales.data() + begin * per_row;
      read_values(job, begin, n, x);
      maxima[size_t(piece)] = checked_maximum(job, x, begin, n);
      quantize_rows(x, n, cols, rule_, g, c, s);
      dequantize_rows(c, s, n, cols, g, y);
      errors[size_t(piece)].add({x, size_t(n * cols)}, {y, size_t(n * cols)});
    });
    for (const QuantError& e : errors) total.add(e);  // in order: the sum is the same every time
    amax = std::max(amax, *std::ranges::max_element(maxima));
    append(bytes_of(codes, size_t(count * cols / 2)));
  }
  note_too_large(job, amax);
  append(bytes_of(scales, scales.size()));
  append_scales(job, g);
  summary_.error.add(total);
  ++summary_.quantised;
}

void Converter::dequantise(const ConvertJob& job) {
  const LogicalTensor& t = *job.from;
  const float g = read_global_scale(source_, t);
  const int64_t cols = t.cols, per_row = cols / kNvfp4Block;
  const size_t width = dtype_bytes(job.dtype);
  const int64_t chunk = std::min(t.rows, rows_of(kChunk, cols));
  std::vector<std::byte> bytes(size_t(chunk * cols) * width);
  for (int64_t at = 0; at < t.rows; at += chunk) {
    const int64_t count = std::min(chunk, t.rows - at);
    std::vector<CastLoss> losses(most_pieces(count, cols));
    for_pieces(at, count, cols, [&](int64_t piece, int64_t begin, int64_t n, size_t thread) {
      std::vector<uint8_t> codes(size_t(n * cols / 2)), scales(size_t(n * per_row));
      float* const x = scratch(x_, thread, n * cols);
      read_nvfp4_rows(source_, t, begin, n, codes.data(), scales.data());
      dequantize_rows(codes.data(), scales.data(), n, cols, g, x);
      losses[size_t(piece)] =
          cast_from_f32(x, n * cols, job.dtype, &bytes[size_t((begin - at) * cols) * width]);
    });
    add_loss(job, losses);
    const auto made = std::span(bytes).first(size_t(count * cols) * width);
    note_not_finite(job, job.dtype, made, uint64_t(at * cols));
    append(made);
  }
  ++summary_.dequantised;
}

void Converter::copy_packed(const ConvertJob& job) {
  const LogicalTensor& t = *job.from;
  const float stored = read_global_scale(source_, t), global = job.global > 0 ? job.global : stored;
  const int64_t cols = t.cols, per_row = cols / kNvfp4Block;
  const int64_t chunk = std::min(t.rows, rows_of(kChunk, cols));
  std::vector<uint8_t> codes(size_t(chunk * cols / 2)), scales(size_t(t.rows * per_row));
  for (int64_t at = 0; at < t.rows; at += chunk) {
    const int64_t count = std::min(chunk, t.rows - at);
    read_nvfp4_rows(source_, t, at, count, codes.data(), scales.data() + at * per_row);
    if (global != stored) {
      rescale_blocks(std::span(codes).first(size_t(count * cols / 2)),
                     std::span(scales).subspan(size_t(at * per_row), size_t(count * per_row)),
                     stored, global);
    }
    append(bytes_of(codes, size_t(count * cols / 2)));
  }
  append(bytes_of(scales, scales.size()));
  append_scales(job, global);
  ++summary_.copied;
}

}  // namespace nibble
