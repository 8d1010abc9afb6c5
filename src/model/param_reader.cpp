// SPDX-License-Identifier: MIT
#include "model/param_reader.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <deque>
#include <future>
#include <limits>
#include <unordered_set>

#include "core/error.h"
#include "core/finite.h"
#include "core/half.h"
#include "core/log.h"
#include "core/thread_pool.h"

namespace nibble {
namespace {

// Elements of a piece: 16 MiB as floats, 9 MiB as NVFP4 that is only passed on.
constexpr int64_t kPiece = 4 << 20, kPackedPiece = 16 << 20;
// Bytes of the file that may lie in the page cache before they are forgotten.
constexpr uint64_t kForget = uint64_t(1) << 30;

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string s = "[";
  for (size_t i = 0; i < shape.size(); ++i) s += (i ? ", " : "") + std::to_string(shape[i]);
  return s + "]";
}

template <class T, class F>
void convert_all(const std::vector<float>& from, std::byte* to, F&& f) {
  T* const out = reinterpret_cast<T*>(to);
  for (size_t i = 0; i < from.size(); ++i) out[i] = f(from[i]);
}

// Floats in the type a weight is held in.
void convert(const std::vector<float>& from, DType type, std::byte* to) {
  switch (type) {
    case DType::f32: return convert_all<float>(from, to, [](float x) { return x; });
    case DType::bf16: return convert_all<bf16_t>(from, to, [](float x) { return to_bf16(x); });
    case DType::f16: return convert_all<f16_t>(from, to, [](float x) { return to_f16(x); });
    case DType::f64: return convert_all<double>(from, to, [](float x) { return double(x); });
    case DType::c128:
      return convert_all<std::complex<double>>(
          from, to, [](float x) { return std::complex<double>(double(x), 0); });
    default: throw_internal("weights in {}", dtype_name(type));
  }
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

void require_parameters(const WeightIndex& index, const Config& c,
                        std::span<const ParamSpec> table) {
  std::vector<std::string> problems;
  for (const ParamSpec& p : table) {
    const LogicalTensor* t = source_of(index, c, p);
    if (!t) {
      problems.push_back(fmt::format("{} {} is missing", p.name, shape_text(p.shape)));
    } else if (t->shape != p.shape) {
      problems.push_back(fmt::format("{} has shape {}, the config wants {}", p.name,
                                     shape_text(t->shape), shape_text(p.shape)));
    } else if (t->packed() && !p.is_linear()) {
      problems.push_back(
          fmt::format("{} is stored as NVFP4, but only linear layers may be", p.name));
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
}

void check_parameters(const WeightIndex& index, const Config& c, std::span<const ParamSpec> table) {
  require_parameters(index, c, table);
  std::unordered_set<std::string_view> known;
  for (const ParamSpec& p : table) known.insert(p.name);
  for (const LogicalTensor& t : index.tensors()) {
    if (!known.contains(t.name))
      log_warning("{} is in the file but not part of the model; not loaded", t.name);
  }
}

ParameterReader::ParameterReader(Backend& backend, const WeightIndex& index, ScaleRule rule,
                                 NotFinite not_finite)
    : be_(backend),
      source_(index.source()),
      rule_(rule),
      not_finite_(not_finite),
      forgets_(backend.traits().device == DeviceKind::cuda && backend.memory_is_host()) {}

ParameterReader::~ParameterReader() {
  if (since_forgotten_ > 0) source_.forget_cached();
}

void ParameterReader::forget_read(uint64_t bytes) {
  if (!forgets_ || (since_forgotten_ += bytes) < kForget) return;
  source_.forget_cached();
  since_forgotten_ = 0;
}

uint64_t ParameterReader::Piece::file_bytes() const {
  const uint64_t n = uint64_t(count * from->cols);
  if (!from->packed()) return n * dtype_bytes(from->raw->dtype);
  return n / 2 + n / uint64_t(kNvfp4Block) * dtype_bytes(from->scales->dtype);
}

uint64_t ParameterReader::planned_bytes() const {
  uint64_t n = 0;
  for (const Piece& p : pieces_) n += p.file_bytes();
  return n;
}

void ParameterReader::add_pieces(const LogicalTensor& t, Piece first, int64_t elements) {
  const int64_t step = std::max<int64_t>(1, elements / std::max<int64_t>(1, t.cols));
  const Tensor all = first.dst;
  first.from = &t;
  for (int64_t r = 0; r < t.rows; r += step) {
    Piece p = first;
    p.row = r;
    p.count = std::min(step, t.rows - r);
    if (all) {
      p.dst = all.slice(r, p.count);
    } else {
      p.packed_row += r;
    }
    pieces_.push_back(std::move(p));
  }
}

void ParameterReader::add_tensor(Tensor dst, const LogicalTensor& t) {
  Piece p;
  p.dst = dst.view({t.rows, t.cols});
  add_pieces(t, std::move(p), kPiece);
}

void ParameterReader::read_rows(Tensor dst, const LogicalTensor& t, int64_t row) {
  Piece p;
  p.from = &t;
  p.row = row;
  p.count = dst.dim(0);
  p.dst = dst;
  pieces_.push_back(std::move(p));
  run();
}

void ParameterReader::add_linear(const LinearWeight& w, const ParamSpec& param,
                                 const LogicalTensor& t) {
  if (w.row_scale) {
    const std::vector<float> g(size_t(t.rows), t.packed() ? read_global_scale(source_, t) : 1.0f);
    be_.upload(w.row_scale.slice(param.row_offset, t.rows), g.data());
  }
  if (w.is_packed() && t.cols % kNvfp4Block != 0) {
    throw_format("{}: the input width {} is not a multiple of {}, so it cannot be held as NVFP4",
                 t.name, t.cols, kNvfp4Block);
  }
  Piece p;
  if (w.is_packed()) {
    p.packed = w;
    p.packed_row = param.row_offset;
  } else {
    p.dst = w.dense.slice(param.row_offset, t.rows);
  }
  add_pieces(t, std::move(p), w.is_packed() && t.packed() ? kPackedPiece : kPiece);
}

void ParameterReader::run(const std::function<void(uint64_t)>& done) {
  const std::vector<Piece> pieces = std::move(pieces_);
  pieces_.clear();
  const size_t ahead =
      std::min<size_t>(pieces.size(), size_t(std::clamp(default_thread_count(), 1, 4)));
  staging_.resize(std::max(staging_.size(), ahead + 1));
  // The future of an asynchronous call waits for it when it goes: nothing outlives the staging.
  std::deque<std::future<void>> under_way;
  const auto begin = [&](size_t i) {
    under_way.push_back(std::async(std::launch::async, [this, &pieces, i] {
      fetch(pieces[i], staging_[i % staging_.size()]);
    }));
  };
  for (size_t i = 0; i < ahead; ++i) begin(i);
  for (size_t i = 0; i < pieces.size(); ++i) {
    under_way.front().get();
    under_way.pop_front();
    if (i + ahead < pieces.size()) begin(i + ahead);
    deliver(pieces[i], staging_[i % staging_.size()]);
    forget_read(pieces[i].file_bytes());
    if (done) done(pieces[i].file_bytes());
  }
}

void ParameterReader::fetch_floats(const Piece& p, Staging& s) const {
  const LogicalTensor& t = *p.from;
  s.floats.resize(size_t(p.count * t.cols));
  if (!t.packed()) {
    read_rows_f32(source_, t, p.row, p.count, s.floats.data());
    return;
  }
  s.codes.resize(s.floats.size() / 2);
  s.scales.resize(s.floats.size() / size_t(kNvfp4Block));
  read_nvfp4_rows(source_, t, p.row, p.count, s.codes.data(), s.scales.data());
  dequantize_rows(s.codes.data(), s.scales.data(), p.count, t.cols, read_global_scale(source_, t),
                  s.floats.data());
}

// What is staged for a dense weight; scales of packed ones are looked at where they are read.
void ParameterReader::check_finite(const Piece& p, const Staging& s) const {
  if (not_finite_ == NotFinite::accept) return;
  const auto at = first_not_finite(p.dst.dtype, s.bytes);
  if (!at) return;
  const int64_t cols = p.from->cols;
  throw_format(
      "{}: tensor '{}' holds NaN or an infinity in row {}, element {}: the file is damaged, or was "
      "made so (nibble inspect lists all there are)",
      source_.describe(), p.from->name, p.row + int64_t(*at) / cols, int64_t(*at) % cols);
}

void ParameterReader::fetch(const Piece& p, Staging& s) const {
  const LogicalTensor& t = *p.from;
  const size_t n = size_t(p.count * t.cols);
  if (p.dst) {
    s.bytes.resize(p.dst.bytes());
    if (!t.packed() && t.raw->dtype == p.dst.dtype) {
      source_.read(*t.raw, uint64_t(p.row * t.cols) * dtype_bytes(p.dst.dtype), s.bytes);
    } else {
      fetch_floats(p, s);
      convert(s.floats, p.dst.dtype, s.bytes.data());
    }
    check_finite(p, s);
    return;
  }
  s.codes.resize(n / 2);
  s.scales.resize(n / size_t(kNvfp4Block));
  if (t.packed()) {
    read_nvfp4_rows(source_, t, p.row, p.count, s.codes.data(), s.scales.data());
    return;
  }
  fetch_floats(p, s);
  const float largest = absolute_maximum(s.floats.data(), int64_t(n));
  if (!(largest <= std::numeric_limits<float>::max())) {
    throw_format("{}: tensor '{}' holds {} in rows {}..{} and cannot be quantised",
                 source_.describe(), t.name, std::isnan(largest) ? "NaN" : "an infinity", p.row,
                 p.row + p.count - 1);
  }
  quantize_rows(s.floats.data(), p.count, t.cols, rule_, 1.0f, s.codes.data(), s.scales.data());
}

void ParameterReader::deliver(const Piece& p, const Staging& s) {
  if (p.dst) {
    be_.upload(p.dst, s.bytes.data());
  } else {
    be_.pack_rows(p.packed, p.packed_row, p.count, s.codes, s.scales);
  }
}

}  // namespace nibble
