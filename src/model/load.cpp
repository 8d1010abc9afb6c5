// SPDX-License-Identifier: MIT
#include "model/load.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>
#include <unordered_set>

#include "core/error.h"
#include "core/half.h"
#include "core/log.h"
#include "core/memory_info.h"
#include "core/progress.h"

namespace nibble {
namespace {

constexpr int64_t kStagingElements = 4 << 20;  // 16 MiB of floats at a time

// The logical tensor a parameter is read from: itself, or the embedding for a tied head that the
// file does not store.
const LogicalTensor* source_of(const WeightIndex& index, const Config& c, const ParamSpec& p) {
  const LogicalTensor* t = index.find(p.name);
  if (!t && p.slot == ParamSlot::head && c.tied) t = index.find(kEmbedName);
  return t;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string s = "[";
  for (size_t i = 0; i < shape.size(); ++i) s += (i ? ", " : "") + std::to_string(shape[i]);
  return s + "]";
}

bool is_loadable(DType t) {
  return t == DType::f32 || t == DType::bf16 || t == DType::f16 || t == DType::f64;
}

// The type a stored tensor is held in: as it is, except that backends compute in at most f32.
DType held_type(DType stored) { return stored == DType::f64 ? DType::f32 : stored; }

// Everything wrong with the file at once: a list helps more than the first of many.
void check_parameters(const WeightIndex& index, const Config& c,
                      const std::vector<ParamSpec>& table) {
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

// Decides types from the file and the options.
class LayoutPlanner {
 public:
  LayoutPlanner(const WeightIndex& index, const Config& c, const std::vector<ParamSpec>& table,
                const LoadOptions& o)
      : index_(index), c_(c), table_(table), o_(o) {}

  WeightLayout plan() {
    WeightLayout layout;
    layout.embed = o_.dtype.value_or(held_type(index_.at(kEmbedName).raw->dtype));
    layout.norm = o_.dtype.value_or(DType::f32);
    for (int64_t l = 0; l < c_.L; ++l) {
      for (ParamSlot slot : kLinearSlots) layout.linear.push_back(linear(l, slot, o_.recipe));
    }
    const auto head_recipe = o_.head_recipe ? o_.head_recipe : o_.recipe;
    layout.head = linear(-1, ParamSlot::head, head_recipe);
    layout.head_is_embed = layout.head.dense && !index_.find(kHeadName);
    return layout;
  }

 private:
  LinearLayout linear(int64_t layer, ParamSlot slot, std::optional<Recipe> recipe) const {
    bool all_packed = true, any_global = false;
    std::optional<DType> raw_type;
    bool mixed = false;
    for (const ParamSpec& p : table_) {
      if (p.slot != slot || p.layer != layer) continue;
      const LogicalTensor& t = *source_of(index_, c_, p);
      if (t.packed()) {
        mixed |= raw_type.has_value();
        any_global |= t.global_scale != nullptr;
        continue;
      }
      mixed |= raw_type && *raw_type != t.raw->dtype;
      all_packed = false;
      raw_type = t.raw->dtype;
    }
    const bool packed = recipe ? *recipe == Recipe::nvfp4 : all_packed;
    if (packed) return {std::nullopt, any_global};
    // NVFP4 values without a global scale are exact in bf16.
    DType dense = all_packed ? (any_global ? DType::f32 : DType::bf16) : *raw_type;
    if (mixed) dense = DType::f32;
    return {o_.dtype.value_or(held_type(dense)), false};
  }

  const WeightIndex& index_;
  const Config& c_;
  const std::vector<ParamSpec>& table_;
  const LoadOptions& o_;
};

// Writes floats into a tensor of any float type.
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

// Copies one parameter into its slot, a few rows at a time.
class ParameterReader {
 public:
  ParameterReader(Backend& be, const WeightIndex& index, const LoadOptions& o)
      : be_(be), source_(index.source()), o_(o) {}

  void read_tensor(Tensor dst, const LogicalTensor& t) {
    const Tensor rows = dst.view({t.rows, t.cols});
    for_each_chunk(
        t, [&](int64_t r, int64_t count) { dense_rows(rows.slice(r, count), t, r, count); });
  }

  void read_linear(const LinearWeight& w, const ParamSpec& p, const LogicalTensor& t) {
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

 private:
  template <class F>
  void for_each_chunk(const LogicalTensor& t, F&& f) {
    const int64_t step = std::max<int64_t>(1, kStagingElements / std::max<int64_t>(1, t.cols));
    for (int64_t r = 0; r < t.rows; r += step) f(r, std::min(step, t.rows - r));
  }

  void dense_rows(Tensor dst, const LogicalTensor& t, int64_t r, int64_t count) {
    if (!t.packed() && t.raw->dtype == dst.dtype) {
      bytes_.resize(dst.bytes());
      source_.read(*t.raw, uint64_t(r * t.cols) * dtype_bytes(dst.dtype), bytes_);
      be_.upload(dst, bytes_.data());
      return;
    }
    read_floats(t, r, count);
    upload_floats(be_, dst, floats_.data(), bytes_);
  }

  void read_floats(const LogicalTensor& t, int64_t r, int64_t count) {
    floats_.resize(size_t(count * t.cols));
    if (!t.packed()) {
      read_rows_f32(source_, t, r, count, floats_.data());
      return;
    }
    read_canonical(t, r, count);
    dequantize_rows(codes_.data(), scales_.data(), count, t.cols, read_global_scale(source_, t),
                    floats_.data());
  }

  void read_canonical(const LogicalTensor& t, int64_t r, int64_t count) {
    codes_.resize(size_t(count * t.cols / 2));
    scales_.resize(size_t(count * t.cols / kNvfp4Block));
    read_nvfp4_rows(source_, t, r, count, codes_.data(), scales_.data());
  }

  void packed_rows(const LinearWeight& w, int64_t dst_row, const LogicalTensor& t, int64_t r,
                   int64_t count) {
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
      quantize_rows(floats_.data(), count, t.cols, o_.scale_rule, 1.0f, codes_.data(),
                    scales_.data());
    }
    be_.pack_rows(w, dst_row, count, codes_, scales_);
  }

  Backend& be_;
  const TensorSource& source_;
  const LoadOptions& o_;
  std::vector<float> floats_;
  std::vector<uint8_t> codes_, scales_;
  std::vector<std::byte> bytes_;
};

std::string describe_layout(const WeightLayout& layout, size_t n_bytes) {
  const auto name = [](const LinearLayout& l) {
    return l.dense ? std::string(dtype_name(*l.dense)) : "nvfp4";
  };
  return fmt::format("linear layers {}, head {}{}, embedding {}, {} of weights",
                     name(layout.linear.front()), name(layout.head),
                     layout.head_is_embed ? " (the embedding itself)" : "",
                     dtype_name(layout.embed), format_bytes(n_bytes));
}

}  // namespace

size_t weight_bytes(const Backend& be, const Config& c, const TensorSource& source,
                    const LoadOptions& o) {
  const WeightIndex index(source);
  const auto table = parameter_table(c);
  check_parameters(index, c, table);
  Arena measure("weights");
  make_weights(measure, be, c, LayoutPlanner(index, c, table, o).plan());
  return measure.peak();
}

Model load_model(Backend& be, const Config& c, const TensorSource& source, const LoadOptions& o) {
  const WeightIndex index(source);
  const auto table = parameter_table(c);
  check_parameters(index, c, table);
  const WeightLayout layout = LayoutPlanner(index, c, table, o).plan();

  Arena measure("weights");
  make_weights(measure, be, c, layout);
  Model m;
  m.config = c;
  m.memory = Arena("weights", be.allocate(measure.peak(), "weights"));
  m.weights = make_weights(m.memory, be, c, layout);
  m.summary = describe_layout(layout, measure.peak());

  ParameterReader reader(be, index, o);
  Progress progress("loading", source.payload_bytes());
  for (const ParamSpec& p : table) {
    if (p.slot == ParamSlot::head && layout.head_is_embed) continue;
    const LogicalTensor& t = *source_of(index, c, p);
    const SlotRef slot = slot_of(m.weights, p);
    if (slot.tensor) {
      reader.read_tensor(*slot.tensor, t);
    } else {
      reader.read_linear(*slot.linear, p, t);
    }
    progress.advance(t.packed() ? t.codes->n_bytes + t.scales->n_bytes : t.raw->n_bytes);
  }
  be.sync();
  if (c.tied && index.find(kHeadName)) m.summary += "; the head is the stored one";
  return m;
}

}  // namespace nibble
