// SPDX-License-Identifier: MIT
#include "model/param_reader.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>
#include <unordered_set>

#include "core/error.h"
#include "core/half.h"
#include "core/log.h"

namespace nibble {
namespace {

constexpr int64_t kStagingElements = 4 << 20;  // 16 MiB of floats at a time

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string s = "[";
  for (size_t i = 0; i < shape.size(); ++i) s += (i ? ", " : "") + std::to_string(shape[i]);
  return s + "]";
}

bool is_loadable(DType t) {
  return t == DType::f32 || t == DType::bf16 || t == DType::f16 || t == DType::f64;
}

}  // namespace

const LogicalTensor* source_of(const WeightIndex& index, const Config& c, const ParamSpec& p) {
  const LogicalTensor* t = index.find(p.name);
  if (!t && p.slot == ParamSlot::head && c.tied) t = index.find(kEmbedName);
  return t;
}

void check_parameters(const WeightIndex& index, const Config& c, std::span<const ParamSpec> table) {
  std::vector<std::string> problems;
  std::unordered_set<std::string_view> known;
  for (const ParamSpec& p : table) {
    known.insert(p.name);
    const LogicalTensor* t = source_of(index, c, p);
    if (!t) {
      problems.push_back(fmt::format("{} {} is missing", p.name, shape_text(p.shape)));
    } else if (t->shape != p.shape) {
      problems.push_back(fmt::format("{} has shape {}, the config wants {}", p.name,
                                     shape_text(t->shape), shape_text(p.shape)));
    } else if (t->packed() && !p.is_linear()) {
      problems.push_back(
          fmt::format("{} is stored as NVFP4, but embeddings and norms must be dense", p.name));
    } else if (!t->packed() && !is_loadable(t->raw->dtype)) {
      problems.push_back(fmt::format("{} has type {}, expected f32, bf16, f16 or f64", p.name,
                                     dtype_name(t->raw->dtype)));
    }
  }
  if (!problems.empty()) {
    const size_t shown = std::min<size_t>(problems.size(), 12);
    std::string list;
    for (size_t i = 0; i < shown; ++i) list += "\n  " + problems[i];
    if (shown < problems.size())
      list += fmt::format("\n  ... and {} more", problems.size() - shown);
    throw_format("{} does not fit the model's config.json:{}", index.source().describe(), list);
  }
  for (const LogicalTensor& t : index.tensors()) {
    if (!known.contains(t.name))
      log_warning("{} is in the file but not part of the model; not loaded", t.name);
  }
}

void upload_floats(Backend& be, Tensor dst, const float* values, std::vector<std::byte>& staging) {
  const size_t n = size_t(dst.numel());
  staging.resize(dst.bytes());
  const auto fill = [&](auto* out, auto convert) {
    for (size_t i = 0; i < n; ++i) out[i] = convert(values[i]);
    be.upload(dst, out);
  };
  switch (dst.dtype) {
    case DType::f32: be.upload(dst, values); return;
    case DType::bf16:
      fill(reinterpret_cast<bf16_t*>(staging.data()), [](float x) { return to_bf16(x); });
      return;
    case DType::f16:
      fill(reinterpret_cast<f16_t*>(staging.data()), [](float x) { return to_f16(x); });
      return;
    case DType::f64:
      fill(reinterpret_cast<double*>(staging.data()), [](float x) { return double(x); });
      return;
    case DType::c128:
      fill(reinterpret_cast<std::complex<double>*>(staging.data()),
           [](float x) { return std::complex<double>(double(x), 0); });
      return;
    default: throw_internal("weights in {}", dtype_name(dst.dtype));
  }
}

template <class F>
void ParameterReader::for_each_chunk(const LogicalTensor& t, F&& f) {
  const int64_t step = std::max<int64_t>(1, kStagingElements / std::max<int64_t>(1, t.cols));
  for (int64_t r = 0; r < t.rows; r += step) f(r, std::min(step, t.rows - r));
}

void ParameterReader::read_tensor(Tensor dst, const LogicalTensor& t) {
  const Tensor rows = dst.view({t.rows, t.cols});
  for_each_chunk(t,
                 [&](int64_t r, int64_t count) { dense_rows(rows.slice(r, count), t, r, count); });
}

void ParameterReader::read_linear(const LinearWeight& w, const ParamSpec& p,
                                  const LogicalTensor& t) {
  if (w.row_scale) {
    const std::vector<float> g(size_t(t.rows), t.packed() ? read_global_scale(source_, t) : 1.0f);
    be_.upload(w.row_scale.slice(p.row_offset, t.rows), g.data());
  }
  if (w.is_packed() && t.cols % kNvfp4Block != 0) {
    throw_format("{}: the input width {} is not a multiple of {}, so it cannot be held as NVFP4",
                 t.name, t.cols, kNvfp4Block);
  }
  for_each_chunk(t, [&](int64_t r, int64_t count) {
    if (w.is_packed()) {
      packed_rows(w, p.row_offset + r, t, r, count);
    } else {
      dense_rows(w.dense.slice(p.row_offset + r, count), t, r, count);
    }
  });
}

void ParameterReader::dense_rows(Tensor dst, const LogicalTensor& t, int64_t r, int64_t count) {
  if (!t.packed() && t.raw->dtype == dst.dtype) {
    bytes_.resize(dst.bytes());
    source_.read(*t.raw, uint64_t(r * t.cols) * dtype_bytes(dst.dtype), bytes_);
    be_.upload(dst, bytes_.data());
    return;
  }
  read_floats(t, r, count);
  upload_floats(be_, dst, floats_.data(), bytes_);
}

void ParameterReader::read_floats(const LogicalTensor& t, int64_t r, int64_t count) {
  floats_.resize(size_t(count * t.cols));
  if (!t.packed()) {
    read_rows_f32(source_, t, r, count, floats_.data());
    return;
  }
  read_canonical(t, r, count);
  dequantize_rows(codes_.data(), scales_.data(), count, t.cols, read_global_scale(source_, t),
                  floats_.data());
}

void ParameterReader::read_canonical(const LogicalTensor& t, int64_t r, int64_t count) {
  codes_.resize(size_t(count * t.cols / 2));
  scales_.resize(size_t(count * t.cols / kNvfp4Block));
  read_nvfp4_rows(source_, t, r, count, codes_.data(), scales_.data());
}

void ParameterReader::packed_rows(const LinearWeight& w, int64_t dst_row, const LogicalTensor& t,
                                  int64_t r, int64_t count) {
  if (t.packed()) {
    read_canonical(t, r, count);
  } else {
    read_floats(t, r, count);
    const float largest = absolute_maximum(floats_.data(), count * t.cols);
    if (!(largest <= std::numeric_limits<float>::max())) {
      throw_format("{}: tensor '{}' holds {} in rows {}..{} and cannot be quantised",
                   source_.describe(), t.name, std::isnan(largest) ? "NaN" : "an infinity", r,
                   r + count - 1);
    }
    codes_.resize(size_t(count * t.cols / 2));
    scales_.resize(size_t(count * t.cols / kNvfp4Block));
    quantize_rows(floats_.data(), count, t.cols, rule_, 1.0f, codes_.data(), scales_.data());
  }
  be_.pack_rows(w, dst_row, count, codes_, scales_);
}

}  // namespace nibble
