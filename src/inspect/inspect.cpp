// SPDX-License-Identifier: MIT
#include "inspect/inspect.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>

#include "convert/tied_head.h"
#include "core/error.h"
#include "core/progress.h"
#include "formats/gguf/block_types.h"
#include "model/params.h"
#include "quant/codec.h"

namespace nibble {
namespace {

std::string stored_name(const TensorInfo& t) {
  return std::string(t.blocks ? t.blocks->name : dtype_name(t.dtype));
}

constexpr int64_t kPiece = 1 << 18;  // elements per piece of parallel work

// Sums over one piece, added up in order afterwards: the same figures at any thread count.
struct Tally {
  double min = std::numeric_limits<double>::infinity(), max = -min, sum = 0, squares = 0;
  int64_t finite = 0, nan = 0, infinite = 0, zero_codes = 0;
  double expected_error = 0;
  float scale_min = std::numeric_limits<float>::infinity(), scale_max = 0;
  QuantError error;

  void add_values(const float* x, int64_t n) {
    if (!std::isfinite(absolute_maximum(x, n))) return add_strange_values(x, n);
    float low = std::numeric_limits<float>::infinity(), high = -low;
    double total = 0, energy = 0;
    for (int64_t i = 0; i < n; ++i) {
      low = std::min(low, x[i]);
      high = std::max(high, x[i]);
      total += double(x[i]);
      energy += double(x[i]) * double(x[i]);
    }
    min = std::min(min, double(low));
    max = std::max(max, double(high));
    sum += total;
    squares += energy;
    finite += n;
  }
  void add_strange_values(const float* x, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
      nan += std::isnan(x[i]);
      infinite += std::isinf(x[i]);
      if (std::isfinite(x[i])) add_values(x + i, 1);
    }
  }
  void add_codes(const uint8_t* codes, const uint8_t* scales, int64_t blocks, float g) {
    for (int64_t b = 0; b < blocks; ++b) {
      const float s = e4m3_value(scales[b]) * g;
      scale_min = std::min(scale_min, std::abs(s));
      scale_max = std::max(scale_max, std::abs(s));
      for (int64_t i = 0; i < kNvfp4Block / 2; ++i) {
        zero_codes += ((codes[b * 8 + i] & 7) == 0) + ((codes[b * 8 + i] >> 4 & 7) == 0);
      }
      expected_error += expected_squared_error(codes + b * 8) * double(s) * double(s);
    }
  }
  void add(const Tally& o) {
    min = std::min(min, o.min);
    max = std::max(max, o.max);
    sum += o.sum;
    squares += o.squares;
    finite += o.finite;
    nan += o.nan;
    infinite += o.infinite;
    zero_codes += o.zero_codes;
    expected_error += o.expected_error;
    scale_min = std::min(scale_min, o.scale_min);
    scale_max = std::max(scale_max, o.scale_max);
    error.add(o.error);
  }
};

void read_values(const TensorSource& source, const LogicalTensor& t, int64_t begin, int64_t n,
                 std::vector<uint8_t>& codes, std::vector<uint8_t>& scales, float g, float* out) {
  if (!t.packed()) return read_rows_f32(source, t, begin, n, out);
  codes.resize(size_t(n * t.cols / 2));
  scales.resize(size_t(n * t.cols / kNvfp4Block));
  read_nvfp4_rows(source, t, begin, n, codes.data(), scales.data());
  dequantize_rows(codes.data(), scales.data(), n, t.cols, g, out);
}

// Where the exact values of a tensor are; null source when they are nowhere.
struct Exact {
  const TensorSource* source = nullptr;
  const LogicalTensor* tensor = nullptr;
};

// One element a row where the rows do not matter, so that pieces stay small.
LogicalTensor flattened(const LogicalTensor& t) {
  LogicalTensor flat = t;
  if (!t.packed()) {
    flat.rows = t.numel();
    flat.cols = 1;
  }
  return flat;
}

Tally tally(const TensorSource& source, const LogicalTensor& tensor, const Exact& exact,
            ThreadPool& pool) {
  // Raw against raw may be cut anywhere; as soon as one side is packed, by rows.
  const bool by_rows = tensor.packed() || (exact.tensor && exact.tensor->packed());
  const LogicalTensor t = by_rows ? tensor : flattened(tensor);
  const LogicalTensor e = !exact.tensor ? LogicalTensor()
                          : by_rows     ? *exact.tensor
                                        : flattened(*exact.tensor);
  const float g = t.packed() ? read_global_scale(source, t) : 1;
  const float exact_g = exact.tensor && e.packed() ? read_global_scale(*exact.source, e) : 1;
  const int64_t rows = std::max<int64_t>(1, kPiece / std::max<int64_t>(1, t.cols));
  std::vector<Tally> pieces(size_t((t.rows + rows - 1) / rows));
  pool.parallel_for(int64_t(pieces.size()), 1, [&](int64_t first, int64_t last, int) {
    std::vector<float> x(size_t(rows * t.cols)), y;
    std::vector<uint8_t> codes, scales, c2, s2;
    for (int64_t p = first; p < last; ++p) {
      const int64_t begin = p * rows, n = std::min(rows, t.rows - begin);
      Tally& sums = pieces[size_t(p)];
      read_values(source, t, begin, n, codes, scales, g, x.data());
      sums.add_values(x.data(), n * t.cols);
      if (t.packed()) sums.add_codes(codes.data(), scales.data(), n * t.cols / kNvfp4Block, g);
      if (exact.tensor) {
        y.resize(size_t(n * t.cols));
        read_values(*exact.source, e, begin, n, c2, s2, exact_g, y.data());
        sums.error.add(y, std::span(x).first(y.size()));
      }
    }
  });
  Tally total;
  for (const Tally& p : pieces) total.add(p);
  return total;
}

class Inspector {
 public:
  Inspector(const WeightIndex& index, const InspectSettings& settings, ThreadPool& pool)
      : index_(index), settings_(settings), pool_(pool) {}

  TensorReport report(const LogicalTensor& t) const {
    TensorReport r = describe(t);
    if (!settings_.payload || !readable(t)) return r;
    try {
      measure(t, r);
    } catch (const FormatError& e) {
      r.problems.push_back(e.what());
    }
    return r;
  }

 private:
  static bool readable(const LogicalTensor& t) {
    if (t.packed()) return true;
    const DType d = t.raw->dtype;
    return d == DType::f16 || d == DType::bf16 || d == DType::f32 || d == DType::f64;
  }

  static TensorReport describe(const LogicalTensor& t) {
    TensorReport r;
    r.name = t.name;
    r.packed = t.packed();
    r.shape = t.shape;
    const auto code = [](const TensorInfo& i) {
      return i.dat_code < 0 ? std::string() : fmt::format(" (code {})", i.dat_code);
    };
    if (!t.packed()) {
      r.stored = stored_name(*t.raw) + code(*t.raw);
      r.n_bytes = t.raw->stored_bytes();
      return r;
    }
    r.stored = fmt::format("nvfp4 {}{} + {}{}", dtype_name(t.codes->dtype), code(*t.codes),
                           dtype_name(t.scales->dtype), code(*t.scales));
    if (t.global_scale) r.stored += " + global scale";
    r.n_bytes =
        t.codes->n_bytes + t.scales->n_bytes + (t.global_scale ? t.global_scale->n_bytes : 0);
    return r;
  }

  // The exact values of t: in the reference, or, for a tied head, the embedding.
  Exact exact_values(const LogicalTensor& t, TensorReport& r) const {
    const WeightIndex* from = settings_.reference;
    auto basis = TensorReport::ErrorBasis::reference;
    const LogicalTensor* e = nullptr;
    if (from) {
      e = from->find(t.name);
      if (!e && t.name == kHeadName) e = from->find(kEmbedName);
      if (!e) r.problems.push_back("the file it is compared with does not have it");
    } else if (t.packed() && t.name == kHeadName) {
      from = &index_;
      e = index_.find(kEmbedName);
      basis = TensorReport::ErrorBasis::embedding;
      if (e && (e->packed() || e->shape != t.shape)) e = nullptr;
    }
    if (!e) return {};
    if (e->shape != t.shape) {
      r.problems.push_back(fmt::format("shape [{}], in the file it is compared with [{}]",
                                       fmt::join(t.shape, ", "), fmt::join(e->shape, ", ")));
      return {};
    }
    if (!readable(*e)) return {};
    r.basis = basis;
    return {&from->source(), e};
  }

  void measure(const LogicalTensor& t, TensorReport& r) const {
    const Exact exact = exact_values(t, r);
    const Tally sums = tally(index_.source(), t, exact, pool_);
    r.nan = sums.nan;
    r.infinite = sums.infinite;
    if (sums.nan > 0) r.problems.push_back(fmt::format("{} values are NaN", sums.nan));
    if (sums.infinite > 0)
      r.problems.push_back(fmt::format("{} values are infinite", sums.infinite));
    if (sums.finite > 0) {
      r.has_values = true;
      r.min = sums.min;
      r.max = sums.max;
      r.mean = sums.sum / double(sums.finite);
      r.rms = std::sqrt(sums.squares / double(sums.finite));
    }
    if (t.packed()) {
      r.zero_codes = double(sums.zero_codes) / double(t.numel());
      r.scale_min = sums.scale_min;
      r.scale_max = sums.scale_max;
      r.global_scale = read_global_scale(index_.source(), t);
    }
    if (exact.tensor) {
      r.relative_rms = sums.error.relative_rms();
      r.max_abs = sums.error.max_abs_error;
    } else if (t.packed()) {
      r.basis = TensorReport::ErrorBasis::estimate;
      // The original's energy is the quantised one's plus the error's, nearly: they are close to
      // uncorrelated with the error.
      const double total = sums.squares + sums.expected_error;
      r.relative_rms = total > 0 ? std::sqrt(sums.expected_error / total) : 0;
    }
  }

  const WeightIndex& index_;
  const InspectSettings& settings_;
  ThreadPool& pool_;
};

void compare_with_table(const WeightIndex& index, const Config& config, InspectReport& report) {
  std::map<std::string, const ParamSpec*> wanted;
  const std::vector<ParamSpec> table = parameter_table(config);
  for (const ParamSpec& p : table) {
    wanted.emplace(p.name, &p);
    const LogicalTensor* t = index.find(p.name);
    if (!t) {
      if (p.slot == ParamSlot::head && config.tied) continue;
      report.problems.push_back(fmt::format("'{}' is missing", p.name));
    } else if (t->shape != p.shape) {
      report.problems.push_back(fmt::format("'{}' has shape [{}], the config asks for [{}]", p.name,
                                            fmt::join(t->shape, ", "), fmt::join(p.shape, ", ")));
    } else if (t->packed() && !p.is_linear()) {
      report.problems.push_back(
          fmt::format("'{}' is NVFP4, and only linear layers may be", p.name));
    }
  }
  for (const LogicalTensor& t : index.tensors()) {
    if (!wanted.contains(t.name)) {
      report.problems.push_back(fmt::format("'{}' is not part of the model", t.name));
    }
  }
}

void note_head(const WeightIndex& index, const InspectSettings& settings, InspectReport& report,
               ThreadPool& pool) {
  const HeadCheck check = check_head(index, pool);
  if (check.relation == HeadCheck::Relation::tied) {
    report.notes.push_back(
        fmt::format("the head is the embedding ({:.3f} % agrees): tied", check.share * 100));
  } else if (check.relation == HeadCheck::Relation::rounded) {
    report.notes.push_back(
        "the head is the embedding at another precision: inference uses both as they are, training "
        "has one matrix");
  } else if (check.relation == HeadCheck::Relation::different && settings.config &&
             settings.config->tied) {
    report.notes.push_back(
        fmt::format("config.json says tied, but the head is not the embedding "
                    "({:.3f} % agrees): it counts as untied",
                    check.share * 100));
  }
}

}  // namespace

double expected_squared_error(const uint8_t* codes) {
  // Second moments about 0, 0.5, 1, 1.5, 2, 3, 4, 6 over the intervals that round to them, and
  // over the part below the value alone.
  constexpr auto kMoments = [] {
    constexpr double end[] = {-0.25, 0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5, 6};
    constexpr double value[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    struct {
      double whole[8], below[8], square[8];
    } m{};
    for (int c = 0; c < 8; ++c) {
      const double low = value[c] - end[c], high = end[c + 1] - value[c];
      m.whole[c] = (low * low * low + high * high * high) / (3 * (low + high));
      m.below[c] = low * low / 3;
      m.square[c] = value[c] * value[c];
    }
    return m;
  }();
  // Rounding to E4M3 moves a scale by at most 1/16 to 1/30 of itself, evenly spread.
  constexpr double kScaleRounding = 1.0 / (16 * 30 * 3);
  int count[8] = {};
  for (int64_t i = 0; i < kNvfp4Block / 2; ++i) {
    ++count[codes[i] & 7];
    ++count[codes[i] >> 4 & 7];
  }
  double sum = 0;
  for (int c = 0; c < 6; ++c) sum += count[c] * kMoments.whole[c];
  // 4 or 6 on top: the largest value has chosen the scale.
  const int top = count[7] > 0 ? 7 : 6;
  if (top == 7) sum += count[6] * kMoments.whole[6];
  if (count[top] > 0) {
    sum += kMoments.square[top] * kScaleRounding + (count[top] - 1) * kMoments.below[top];
  }
  return sum;
}

bool InspectReport::damaged() const {
  return !problems.empty() ||
         std::ranges::any_of(tensors, [](const TensorReport& t) { return !t.problems.empty(); });
}

InspectReport inspect_weights(const TensorSource& source, const InspectSettings& settings,
                              ThreadPool& pool) {
  InspectReport report;
  std::unique_ptr<WeightIndex> index;
  try {
    index = std::make_unique<WeightIndex>(source);
  } catch (const FormatError& e) {  // a broken pair: what is there is still worth listing
    report.problems.push_back(e.what());
    for (const TensorInfo& info : source.tensors()) {
      TensorReport r;
      r.name = info.name;
      r.shape = info.shape;
      r.stored = stored_name(info);
      if (info.dat_code >= 0) r.stored += fmt::format(" (code {})", info.dat_code);
      r.n_bytes = info.stored_bytes();
      report.tensors.push_back(std::move(r));
    }
    return report;
  }
  if (settings.config) compare_with_table(*index, *settings.config, report);
  const Inspector inspector(*index, settings, pool);
  Progress progress("inspect", source.stored_bytes());
  for (const LogicalTensor& t : index->tensors()) {
    report.tensors.push_back(inspector.report(t));
    progress.advance(report.tensors.back().n_bytes);
  }
  if (settings.payload && !report.damaged()) note_head(*index, settings, report, pool);
  return report;
}

}  // namespace nibble
