// SPDX-License-Identifier: MIT
#include "formats/weights.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <utility>

#include "core/error.h"
#include "core/half.h"
#include "quant/codec.h"
#include "quant/nvfp4.h"

namespace nibble {
namespace {

constexpr int64_t kChunk = 1 << 16;  // elements converted at a time

constexpr Nvfp4Form kForms[] = {
    {Nvfp4Names::nibble, ".weight.qdata", ".weight.scale", ".weight.global_scale", "", false,
     false},
    {Nvfp4Names::compressed_tensors, ".weight_packed", ".weight_scale", ".weight_global_scale",
     ".input_global_scale", true, false},
    {Nvfp4Names::modelopt, ".weight", ".weight_scale", ".weight_scale_2", ".input_scale", false,
     true},
};

// Of several files it is the one with this tensor that is damaged.
std::string file_of(const TensorSource& source, const TensorInfo& info) {
  const auto i = size_t(info.file_index);
  return i < source.files().size() ? source.files()[i].path().string() : source.name();
}

enum class Part { raw, codes, scales, global_scale, input_scale, left_out };
struct PartName {
  Part part = Part::raw;
  std::string logical;
  Nvfp4Names names = Nvfp4Names::nibble;
};

// The part of a matrix that a tensor is, by its name, and by its type where the name is a dense
// tensor's, too.
PartName classify(const TensorSource& source, const TensorInfo& info) {
  const std::string& name = info.name;
  const auto stem = [&](std::string_view suffix) {
    return name.substr(0, name.size() - suffix.size());
  };
  const std::pair<std::string_view, Part> own[] = {
      {".qdata", Part::codes}, {".scale", Part::scales}, {".global_scale", Part::global_scale}};
  for (const auto& [suffix, part] : own) {
    if (!name.ends_with(suffix)) continue;
    std::string logical = stem(suffix);
    if (!logical.ends_with(".weight")) logical += ".weight";  // both key styles are in use
    return {part, std::move(logical)};
  }
  // Scales of a cache in eight bits, which is another program's choice.
  if (name.ends_with(".k_scale") || name.ends_with(".v_scale")) return {Part::left_out, name};
  if (name.ends_with(".pre_quant_scale")) {
    throw_format(
        "{}: '{}': inputs of this layer are to be scaled one by one first (AWQ), which is "
        "not done here; use a checkpoint without it",
        file_of(source, info), name);
  }
  for (const Nvfp4Form& f : kForms) {
    if (f.names == Nvfp4Names::nibble) continue;
    const std::pair<std::string_view, Part> parts[] = {{f.codes, Part::codes},
                                                       {f.scales, Part::scales},
                                                       {f.global, Part::global_scale},
                                                       {f.input, Part::input_scale}};
    for (const auto& [suffix, part] : parts) {
      if (!name.ends_with(suffix)) continue;
      const std::string layer = stem(suffix);
      if (suffix == ".weight") {
        if (info.dtype != DType::u8 || !source.find(layer + ".weight_scale")) continue;
      }
      // Both call their scales alike: the codes say whose they are.
      const bool packed = source.find(layer + ".weight_packed") != nullptr;
      const bool here = packed == (f.names == Nvfp4Names::compressed_tensors);
      if (suffix == ".weight_scale" && !here) continue;
      return {part, layer + ".weight", f.names};
    }
  }
  return {Part::raw, name};
}

void set_matrix(LogicalTensor& t) {
  t.rows = t.shape.size() < 2 ? 1 : t.shape[0];
  t.cols = 1;
  for (size_t i = t.shape.size() < 2 ? 0 : 1; i < t.shape.size(); ++i) t.cols *= t.shape[i];
}

void check_packed(const TensorSource& source, LogicalTensor& t) {
  const TensorInfo* const part = t.codes    ? t.codes
                                 : t.scales ? t.scales
                                 : t.raw    ? t.raw
                                            : t.global_scale;
  const std::string where = part ? file_of(source, *part) : source.name();
  const auto fail = [&](const std::string& what) {
    throw_format("{}: NVFP4 tensor '{}': {}", where, t.name, what);
  };
  // Codes that are called like a dense weight are told from one by their scales.
  const bool lost = t.names == Nvfp4Names::modelopt && t.raw && t.raw->dtype == DType::u8;
  if (lost && !t.codes && !t.scales) fail("the scales (.weight_scale) are missing");
  if (t.raw) fail("it is stored raw as well");
  const Nvfp4Form& form = nvfp4_form(t.names);
  const auto missing = [&](std::string_view suffix, const char* what) {
    fail(fmt::format("the {} ({}) are missing", what, suffix.substr(suffix.rfind('.'))));
  };
  if (!t.codes) missing(form.codes, "codes");
  if (!t.scales) missing(form.scales, "scales");
  const TensorInfo &codes = *t.codes, &scales = *t.scales;
  if (codes.dtype != DType::u8) fail("the codes are " + codes.describe() + ", not u8");
  if (codes.shape.size() != 2 || codes.shape[0] < 1 || codes.shape[1] < 1 ||
      codes.shape[1] * 2 % kNvfp4Block != 0) {
    fail("codes of shape " + codes.describe() + "; expected [out, in/2], in a multiple of 16");
  }
  t.shape = {codes.shape[0], codes.shape[1] * 2};
  set_matrix(t);
  const std::vector<int64_t> wanted = {t.rows, t.cols / kNvfp4Block};
  if (scales.shape != wanted) {
    fail(fmt::format("scales of shape {}; expected [{}]", scales.describe(),
                     fmt::join(wanted, ", ")));
  }
  if (scales.dtype != DType::f8_e4m3 && scales.dtype != DType::f16 && scales.dtype != DType::f32) {
    fail("the scales are " + scales.describe() + ", not f8_e4m3");
  }
  const auto check_one = [&](const TensorInfo* one, const char* what) {
    if (one && (one->dtype != DType::f32 || one->numel() != 1)) {
      fail(fmt::format("the {} is {}, not f32[1]", what, one->describe()));
    }
  };
  check_one(t.global_scale, "global scale");
  check_one(t.input_scale, "scale of its inputs");
  // Theirs is always there; without it the values would be wrong by orders of magnitude.
  if (t.names != Nvfp4Names::nibble && !t.global_scale) {
    fail(fmt::format("the global scale ({}) is missing", form.global));
  }
}

void check_rows(const LogicalTensor& t, int64_t begin, int64_t count) {
  if (begin < 0 || count < 0 || count > t.rows - begin) {
    throw_internal("rows {} to {} of '{}', which has {}", begin, begin + count, t.name, t.rows);
  }
}

void read_elements(const TensorSource& source, const TensorInfo& info, int64_t first, size_t n,
                   void* out) {
  const size_t size = dtype_bytes(info.dtype);
  source.read(info, uint64_t(first) * size, {static_cast<std::byte*>(out), n * size});
}

float as_float(float x) { return x; }
float as_float(f16_t x) { return to_float(x); }
float as_float(bf16_t x) { return to_float(x); }

// Elements [first, first + n) through a small buffer; `each(i, value)` takes them in order.
template <class T, class Each>
void for_each_element(const TensorSource& source, const TensorInfo& info, int64_t first, int64_t n,
                      Each&& each) {
  std::vector<T> buffer(size_t(std::min(n, kChunk)));
  for (int64_t done = 0; done < n;) {
    const int64_t count = std::min(n - done, kChunk);
    read_elements(source, info, first + done, size_t(count), buffer.data());
    for (int64_t i = 0; i < count; ++i) each(done + i, buffer[size_t(i)]);
    done += count;
  }
}

[[noreturn]] void bad_scale(const TensorSource& source, const LogicalTensor& t, int64_t at,
                            float value) {
  const int64_t per_row = t.cols / kNvfp4Block;
  throw_format("{}: NVFP4 tensor '{}': scale {} at row {}, block {} is not a finite E4M3 value",
               file_of(source, *t.scales), t.name, value, at / per_row, at % per_row);
}

template <class T>
void read_float_scales(const TensorSource& source, const LogicalTensor& t, int64_t first, int64_t n,
                       uint8_t* out) {
  for_each_element<T>(source, *t.scales, first, n, [&](int64_t i, T stored) {
    const float x = as_float(stored);
    const uint8_t code = e4m3_encode(x);
    if (!(e4m3_value(code) == x)) bad_scale(source, t, first + i, x);
    out[i] = code;
  });
}

}  // namespace

WeightIndex::WeightIndex(const TensorSource& source) : source_(&source) {
  const bool grouped = source.grouped();
  std::unordered_map<std::string, size_t> position;
  for (const TensorInfo& info : source.tensors()) {
    // The NVFP4 of a GGUF is a block type, not a group: its names end as they like.
    PartName part = grouped ? classify(source, info) : PartName{Part::raw, info.name};
    if (part.part == Part::left_out) continue;
    const auto [it, is_new] = position.emplace(std::move(part.logical), tensors_.size());
    if (is_new) tensors_.emplace_back().name = it->first;
    LogicalTensor& t = tensors_[it->second];
    if (part.part != Part::raw) t.kind = LogicalTensor::Kind::nvfp4, t.names = part.names;
    const TensorInfo*& slot = part.part == Part::raw            ? t.raw
                              : part.part == Part::codes        ? t.codes
                              : part.part == Part::scales       ? t.scales
                              : part.part == Part::global_scale ? t.global_scale
                                                                : t.input_scale;
    if (slot) {
      throw_format("{}: '{}' and '{}' are the same part of '{}'", source.name(), slot->name,
                   info.name, t.name);
    }
    slot = &info;
  }
  for (LogicalTensor& t : tensors_) {
    if (t.packed()) {
      check_packed(source, t);
    } else {
      t.shape = t.raw->shape;
      set_matrix(t);
    }
  }
  by_name_.reserve(tensors_.size());
  for (size_t i = 0; i < tensors_.size(); ++i) by_name_.emplace(tensors_[i].name, i);
}

const LogicalTensor* WeightIndex::find(std::string_view name) const {
  const auto it = by_name_.find(name);
  return it == by_name_.end() ? nullptr : &tensors_[it->second];
}

const LogicalTensor& WeightIndex::at(std::string_view name) const {
  if (const LogicalTensor* t = find(name)) return *t;
  throw_format("{}: there is no weight '{}'", source_->describe(), name);
}

void read_nvfp4_rows(const TensorSource& source, const LogicalTensor& tensor, int64_t row_begin,
                     int64_t row_count, uint8_t* codes, uint8_t* scales) {
  if (!tensor.packed()) throw_internal("'{}' is read as NVFP4, it is raw", tensor.name);
  check_rows(tensor, row_begin, row_count);
  const int64_t per_row = tensor.cols / kNvfp4Block;
  const int64_t first = row_begin * per_row, n = row_count * per_row;
  read_elements(source, *tensor.codes, row_begin * (tensor.cols / 2),
                size_t(row_count * (tensor.cols / 2)), codes);
  switch (tensor.scales->dtype) {
    case DType::f16: return read_float_scales<f16_t>(source, tensor, first, n, scales);
    case DType::f32: return read_float_scales<float>(source, tensor, first, n, scales);
    default: break;
  }
  read_elements(source, *tensor.scales, first, size_t(n), scales);
  for (int64_t i = 0; i < n; ++i) {
    if ((scales[i] & 0x7f) == kE4m3NanCode) bad_scale(source, tensor, first + i, NAN);
  }
}

std::span<const Nvfp4Form> nvfp4_forms() { return kForms; }

const Nvfp4Form& nvfp4_form(Nvfp4Names names) {
  for (const Nvfp4Form& f : kForms) {
    if (f.names == names) return f;
  }
  throw_internal("names of NVFP4 {}", int(names));
}

namespace {

float read_multiplier(const TensorSource& source, const LogicalTensor& tensor,
                      const TensorInfo& info, const char* what) {
  float g = 0;
  read_elements(source, info, 0, 1, &g);
  const float factor = nvfp4_form(tensor.names).divisor ? 1 / g : g;
  if (!(g > 0 && g <= FLT_MAX) || !(factor > 0 && factor <= FLT_MAX)) {
    throw_format("{}: NVFP4 tensor '{}': {} {} is not a positive number", file_of(source, info),
                 tensor.name, what, g);
  }
  return factor;
}

}  // namespace

float read_global_scale(const TensorSource& source, const LogicalTensor& tensor) {
  if (!tensor.global_scale) return 1;
  return read_multiplier(source, tensor, *tensor.global_scale, "global scale");
}

float read_input_scale(const TensorSource& source, const LogicalTensor& tensor) {
  if (!tensor.input_scale) return 0;
  return read_multiplier(source, tensor, *tensor.input_scale, "scale of its inputs");
}

void read_rows_f32(const TensorSource& source, const LogicalTensor& tensor, int64_t row_begin,
                   int64_t row_count, float* out) {
  if (tensor.packed()) throw_internal("'{}' is read as raw, it is NVFP4", tensor.name);
  check_rows(tensor, row_begin, row_count);
  const int64_t first = row_begin * tensor.cols, n = row_count * tensor.cols;
  const TensorInfo& raw = *tensor.raw;
  const auto convert = [&](int64_t i, auto x) { out[i] = as_float(x); };
  switch (raw.dtype) {
    case DType::f32: return read_elements(source, raw, first, size_t(n), out);
    case DType::f16: return for_each_element<f16_t>(source, raw, first, n, convert);
    case DType::bf16: return for_each_element<bf16_t>(source, raw, first, n, convert);
    case DType::f64:
      return for_each_element<double>(source, raw, first, n, [&](int64_t i, double x) {
        out[i] = float(x);
        if (std::isinf(out[i]) && !std::isinf(x)) {
          throw_format("tensor '{}': element {} is {}, which f32 cannot hold", tensor.name,
                       first + i, x);
        }
      });
    default: throw_format("tensor '{}' is {}, not floating point", tensor.name, raw.describe());
  }
}

}  // namespace nibble
