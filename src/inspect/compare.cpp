// SPDX-License-Identifier: MIT
#include "inspect/compare.h"

#include <fmt/ranges.h>
#include <algorithm>

#include <charconv>
#include <cmath>
#include <limits>
#include <tuple>

#include "core/error.h"
#include "core/half.h"
#include "quant/codec.h"

namespace nibble {
namespace {

constexpr int64_t kChunk = 1 << 18;  // elements compared at a time

void count_special(SpecialValues& s, double v) {
  s.nan += std::isnan(v);
  s.inf += std::isinf(v);
}

// Sort key of a recorded name: phase, layer, step inside the layer.
struct Step {
  int phase = 6;
  int64_t layer = 0;
  int inner = 0;
};

Step step_of(std::string_view name) {
  if (name.starts_with("acts.")) name.remove_prefix(5);
  if (name == "input_ids") return {0, 0, 0};
  if (name == "labels") return {0, 0, 1};
  if (name == "embed") return {1, 0, 0};
  if (name == "final_norm") return {3, 0, 0};
  if (name == "logits") return {4, 0, 0};
  if (name == "loss") return {5, 0, 0};
  constexpr std::string_view kLayers = "layers.";
  if (!name.starts_with(kLayers)) return {};
  name.remove_prefix(kLayers.size());
  int64_t layer = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), layer);
  if (error != std::errc() || end == name.data() + name.size() || *end != '.') return {};
  name.remove_prefix(size_t(end - name.data()) + 1);
  constexpr std::string_view kInner[] = {"attn_norm", "qkv",      "q",       "k",       "attn",
                                         "attn_out",  "ffn_norm", "ffn_act", "ffn_out", "out"};
  const auto* at = std::find(std::begin(kInner), std::end(kInner), name);
  return {2, layer, int(at - std::begin(kInner))};
}

template <class T, class F>
void convert_all(const std::vector<std::byte>& raw, std::vector<double>& out, F&& f) {
  const T* values = reinterpret_cast<const T*>(raw.data());
  for (size_t i = 0; i < out.size(); ++i) out[i] = f(values[i]);
}

void read_doubles(const TensorSource& source, const TensorInfo& t, int64_t first, int64_t n,
                  std::vector<std::byte>& raw, std::vector<double>& out) {
  const size_t e = dtype_bytes(t.dtype);
  raw.resize(size_t(n) * e);
  out.resize(size_t(n));
  source.read(t, uint64_t(first) * e, raw);
  const auto plain = [](auto v) { return double(v); };
  const auto half = [](auto v) { return double(to_float(v)); };
  switch (t.dtype) {
    case DType::f64: return convert_all<double>(raw, out, plain);
    case DType::f32: return convert_all<float>(raw, out, plain);
    case DType::bf16: return convert_all<bf16_t>(raw, out, half);
    case DType::f16: return convert_all<f16_t>(raw, out, half);
    case DType::f8_e4m3:
      return convert_all<uint8_t>(raw, out, [](uint8_t v) { return double(e4m3_value(v)); });
    case DType::i64: return convert_all<int64_t>(raw, out, plain);
    case DType::i32: return convert_all<int32_t>(raw, out, plain);
    case DType::i16: return convert_all<int16_t>(raw, out, plain);
    case DType::i8: return convert_all<int8_t>(raw, out, plain);
    case DType::u8:
    case DType::boolean: return convert_all<uint8_t>(raw, out, plain);
    case DType::c128: break;
  }
  throw_internal("tensor '{}' of type {} cannot be compared", t.name, dtype_name(t.dtype));
}

std::string shape_text(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

template <class Item>
std::vector<const Item*> in_run_order(std::span<const Item> items) {
  std::vector<const Item*> order;
  for (const Item& i : items) order.push_back(&i);
  std::stable_sort(order.begin(), order.end(),
                   [](const Item* x, const Item* y) { return runs_before(x->name, y->name); });
  return order;
}

// Pairs up by name; compare(a, b) makes the difference of a pair of equal shape.
template <class Item, class Compare>
std::vector<Difference> compare_all(std::span<const Item> a, std::span<const Item> b,
                                    Compare&& compare) {
  const auto find = [](std::span<const Item> items, const std::string& name) -> const Item* {
    const auto it =
        std::find_if(items.begin(), items.end(), [&](const Item& i) { return i.name == name; });
    return it == items.end() ? nullptr : &*it;
  };
  std::vector<Difference> all;
  for (const Item* x : in_run_order(a)) {
    const Item* y = find(b, x->name);
    Difference d;
    if (!y) {
      d.problem = "only in the first";
    } else if (x->shape != y->shape) {
      d.problem = fmt::format("shapes {} and {}", shape_text(x->shape), shape_text(y->shape));
    } else {
      d = compare(*x, *y);
    }
    d.name = x->name;
    d.shape = x->shape;
    all.push_back(std::move(d));
  }
  for (const Item* y : in_run_order(b)) {
    if (find(a, y->name)) continue;
    Difference d;
    d.name = y->name;
    d.shape = y->shape;
    d.problem = "only in the second";
    all.push_back(std::move(d));
  }
  std::stable_sort(all.begin(), all.end(), [](const Difference& x, const Difference& y) {
    return runs_before(x.name, y.name);
  });
  return all;
}

}  // namespace

void DifferenceSum::add_one(double a, double b) {
  const int64_t at = n_++;
  count_special(special_a_, a);
  count_special(special_b_, b);
  if (!std::isfinite(a) || !std::isfinite(b)) {
    mismatched_ += !(a == b);  // a NaN equals nothing
    return;
  }
  const double d = a - b;
  diff_ += d * d;
  aa_ += a * a;
  bb_ += b * b;
  ab_ += a * b;
  if (std::fabs(d) > max_) {
    max_ = std::fabs(d);
    max_at_ = at;
  }
}

Difference DifferenceSum::result() const {
  Difference r;
  r.a = special_a_;
  r.b = special_b_;
  r.max_abs = max_;
  r.max_at = max_at_;
  const double infinite = std::numeric_limits<double>::infinity();
  r.relative_l2 = mismatched_ > 0 ? infinite
                  : diff_ == 0    ? 0
                  : bb_ == 0      ? infinite
                                  : std::sqrt(diff_ / bb_);
  // Two zero tensors point the same way; a zero tensor and another do not.
  r.cosine = diff_ == 0 ? 1 : aa_ == 0 || bb_ == 0 ? 0 : ab_ / std::sqrt(aa_ * bb_);
  return r;
}

Difference compare_values(std::span<const float> a, std::span<const float> b) {
  if (a.size() != b.size()) throw_internal("{} values against {}", a.size(), b.size());
  DifferenceSum sum;
  sum.add(a, b);
  return sum.result();
}

bool runs_before(std::string_view x, std::string_view y) {
  const Step a = step_of(x), b = step_of(y);
  // Names outside the run have no order of their own but the alphabet's.
  const bool named = a.phase == 6 && b.phase == 6;
  return std::tuple(a.phase, a.layer, a.inner, named ? x : std::string_view()) <
         std::tuple(b.phase, b.layer, b.inner, named ? y : std::string_view());
}

std::vector<Difference> compare_recordings(const TensorSource& a, const TensorSource& b) {
  std::vector<std::byte> raw;
  std::vector<double> va, vb;
  return compare_all<TensorInfo>(
      a.tensors(), b.tensors(), [&](const TensorInfo& x, const TensorInfo& y) {
        DifferenceSum sum;
        for (int64_t first = 0; first < x.numel(); first += kChunk) {
          const int64_t n = std::min(kChunk, x.numel() - first);
          read_doubles(a, x, first, n, raw, va);
          read_doubles(b, y, first, n, raw, vb);
          sum.add(std::span<const double>(va), std::span<const double>(vb));
        }
        return sum.result();
      });
}

std::vector<Difference> compare_recordings(std::span<const Recorded> a,
                                           std::span<const Recorded> b) {
  return compare_all<Recorded>(a, b, [](const Recorded& x, const Recorded& y) {
    return compare_values(x.values, y.values);
  });
}

const Difference* first_over(std::span<const Difference> differences, double tolerance) {
  for (const Difference& d : differences) {
    if (d.over(tolerance)) return &d;
  }
  return nullptr;
}

}  // namespace nibble
