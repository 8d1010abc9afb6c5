// SPDX-License-Identifier: MIT
#include "convert/trained_source.h"

#include <algorithm>
#include <cstring>

#include "convert/raw_cast.h"
#include "core/error.h"
#include "core/half.h"
#include "quant/codec.h"

namespace nibble {
namespace {

constexpr int64_t kBlockBytes = kNvfp4Block / 2;

float rounded_to(float x, DType t) { return t == DType::bf16 ? to_float(to_bf16(x)) : x; }

// A step of a small rate moves a norm or a bias by less than half a step of 16 bits: its master is
// fp32, and what was learned must not be lost in the file. True where a value that training changed
// would be.
bool loses_training(const TensorSource& base, const LogicalTensor& t, const TrainedValues& values,
                    const ParamSpec& p) {
  if (p.is_matrix() || values.master_type(p) != DType::f32) return false;
  const std::vector<float> now = values.master(p, 0, p.numel());
  std::vector<float> file(now.size());
  LogicalTensor flat = t;
  flat.rows = flat.numel();
  flat.cols = 1;
  read_rows_f32(base, flat, 0, flat.rows, file.data());
  std::vector<float> changed;
  for (size_t i = 0; i < now.size(); ++i) {
    if (now[i] != file[i]) changed.push_back(now[i]);
  }
  std::vector<std::byte> bytes(changed.size() * dtype_bytes(t.raw->dtype));
  return cast_from_f32(changed.data(), int64_t(changed.size()), t.raw->dtype, bytes.data())
             .inexact > 0;
}

std::vector<TensorInfo> listed(const TensorSource& base, const TrainedValues& values,
                               RawTypes types) {
  std::vector<TensorInfo> infos = base.tensors();
  for (TensorInfo& t : infos) t.blocks = nullptr;  // read() gives them as they are
  const WeightIndex index(base);
  for (const ParamSpec& p : values.table()) {
    const LogicalTensor* t = index.find(p.name);
    const bool wide = types == RawTypes::of_master && values.master_type(p) == DType::f32;
    if (t && !t->packed() && (wide || loses_training(base, *t, values, p))) {
      const auto at = std::ranges::find(infos, p.name, &TensorInfo::name);
      at->dtype = DType::f32;
      at->n_bytes = uint64_t(p.numel()) * 4;
      at->dat_code = -1;
    }
    if (t || p.slot != ParamSlot::head || values.tied()) continue;
    TensorInfo head = *base.find(kEmbedName);  // a head of its own, stored like the embedding
    head.name = p.name;
    infos.push_back(head);
  }
  return infos;
}

// The packed layouts of backends have no negative scales; such a block is compared in that form.
bool same_block(const uint8_t* codes, uint8_t scale, const uint8_t* file_codes,
                uint8_t file_scale) {
  const uint8_t flip = file_scale & 0x80 ? 0x88 : 0;
  if (scale != (file_scale & 0x7f)) return false;
  for (int64_t i = 0; i < kBlockBytes; ++i) {
    if (codes[i] != (file_codes[i] ^ flip)) return false;
  }
  return true;
}

}  // namespace

TrainedSource::TrainedSource(const TensorSource& base, const TrainedValues& values, RawTypes types)
    : TensorSource(Virtual{}, base.format(), listed(base, values, types), base.metadata()),
      base_(base),
      values_(values),
      types_(types),
      index_(base) {
  add_entries();
}

void TrainedSource::add_entries() {
  const std::vector<ParamSpec>& table = values_.table();
  bool embed_trained = false;
  for (size_t i = 0; i < table.size(); ++i) {
    embed_trained |= table[i].slot == ParamSlot::embed && values_.trained(i);
  }
  for (size_t i = 0; i < table.size(); ++i) {
    const ParamSpec& p = table[i];
    const bool tied_head = p.slot == ParamSlot::head && values_.tied();
    const LogicalTensor* t = index_.find(p.name);
    if (!(tied_head ? embed_trained : values_.trained(i))) {
      if (t || p.slot != ParamSlot::head || values_.tied()) continue;  // frozen: the base's
    }
    Entry e;
    e.stored = t;
    e.loaded = tied_head || !t ? index_.find(kEmbedName) : t;
    if (values_.master_type(p)) e.param = &p;
    if (!t || !t->packed()) {
      entries_.emplace(p.name, e);
      continue;
    }
    e.part = Part::codes;
    entries_.emplace(t->codes->name, e);
    e.part = Part::scales;
    entries_.emplace(t->scales->name, e);
  }
}

void TrainedSource::read(const TensorInfo& info, uint64_t offset, std::span<std::byte> out) const {
  const auto it = entries_.find(info.name);
  if (it == entries_.end()) {
    const TensorInfo& stored = base_.at(info.name);
    if (stored.dtype == info.dtype) return base_.read(stored, offset, out);
  }
  if (out.empty()) return;
  const std::lock_guard lock(mutex_);
  const uint64_t end = offset + out.size();
  // Whole elements or rows around the bytes that are wanted.
  if (it == entries_.end() || it->second.part == Part::raw) {
    Entry frozen;
    frozen.stored = frozen.loaded = index_.find(info.name);
    const Entry& e = it == entries_.end() ? frozen : it->second;
    const uint64_t size = dtype_bytes(info.dtype);
    const int64_t first = int64_t(offset / size), last = int64_t((end + size - 1) / size);
    std::vector<std::byte> bytes(size_t(last - first) * size);
    read_raw(e, info, first, last - first, bytes.data());
    std::memcpy(out.data(), bytes.data() + (offset - uint64_t(first) * size), out.size());
    return;
  }
  const Entry& e = it->second;
  const uint64_t row_bytes = info.n_bytes / uint64_t(e.stored->rows);
  const int64_t first = int64_t(offset / row_bytes);
  const int64_t rows = int64_t((end + row_bytes - 1) / row_bytes) - first;
  std::vector<uint8_t> codes(size_t(rows * e.stored->cols / 2));
  std::vector<uint8_t> scales(size_t(rows * e.stored->cols / kNvfp4Block));
  packed_rows(e, first, rows, codes.data(), scales.data());
  std::vector<std::byte> bytes(size_t(rows) * row_bytes);
  if (e.part == Part::codes) {
    std::memcpy(bytes.data(), codes.data(), bytes.size());
  } else if (dtype_bytes(info.dtype) == 1) {
    std::memcpy(bytes.data(), scales.data(), bytes.size());
  } else {  // old exports keep scales as f16 or f32; every E4M3 value is exact in both
    std::vector<float> values(scales.size());
    std::ranges::transform(scales, values.begin(), [](uint8_t s) { return e4m3_value(s); });
    cast_from_f32(values.data(), int64_t(values.size()), info.dtype, bytes.data());
  }
  std::memcpy(out.data(), bytes.data() + (offset - uint64_t(first) * row_bytes), out.size());
}

std::vector<float> TrainedSource::loaded_rows(const LogicalTensor& t, int64_t row, int64_t rows,
                                              DType master) const {
  std::vector<float> x(size_t(rows * t.cols));
  if (t.packed()) {
    std::vector<uint8_t> codes(size_t(rows * t.cols / 2)), scales(size_t(rows * t.cols / 16));
    read_nvfp4_rows(base_, t, row, rows, codes.data(), scales.data());
    dequantize_rows(codes.data(), scales.data(), rows, t.cols, read_global_scale(base_, t),
                    x.data());
  } else {
    read_rows_f32(base_, t, row, rows, x.data());
  }
  for (float& v : x) v = rounded_to(v, master);
  return x;
}

std::vector<float> TrainedSource::master_rows(const Entry& e, int64_t row, int64_t rows) const {
  const int64_t cols = e.param->numel() / (e.param->is_matrix() ? e.param->shape[0] : 1);
  return values_.master(*e.param, row * cols, rows * cols);
}

void TrainedSource::read_raw(const Entry& e, const TensorInfo& info, int64_t begin, int64_t count,
                             std::byte* out) const {
  // One element a row: ranges of any size.
  LogicalTensor flat = *e.loaded;
  flat.rows = flat.numel();
  flat.cols = 1;
  if (!e.param) {  // frozen: in a wider type than the file's, or a head the file does not have
    std::vector<float> x(static_cast<size_t>(count));
    read_rows_f32(base_, flat, begin, count, x.data());
    cast_from_f32(x.data(), count, info.dtype, out);
    return;
  }
  const DType master = *values_.master_type(*e.param);
  const std::vector<float> now = values_.master(*e.param, begin, count);
  std::vector<float> file(now.size());
  read_rows_f32(base_, flat, begin, count, file.data());
  std::vector<float> chosen = now;
  // In a conversion the master itself is what is quantised next, as in training.
  if (types_ == RawTypes::of_file) {
    for (size_t i = 0; i < now.size(); ++i) {
      if (rounded_to(file[i], master) == now[i]) chosen[i] = file[i];
    }
  }
  const CastLoss loss = cast_from_f32(chosen.data(), count, info.dtype, out);
  if (loss.overflow > 0) {
    throw_format(
        "export: {} holds values that the file's type {} cannot; the training may have diverged, "
        "or write to a directory instead of a .dat",
        info.name, dtype_name(info.dtype));
  }
}

void TrainedSource::packed_rows(const Entry& e, int64_t row, int64_t rows, uint8_t* codes,
                                uint8_t* scales) const {
  const LogicalTensor& t = *e.stored;
  const int64_t blocks = rows * t.cols / kNvfp4Block;
  std::vector<uint8_t> file_codes(size_t(blocks * kBlockBytes));
  std::vector<uint8_t> file_scales(static_cast<size_t>(blocks));
  read_nvfp4_rows(base_, t, row, rows, file_codes.data(), file_scales.data());
  const auto keep_file = [&](int64_t b) {
    std::copy_n(&file_codes[size_t(b * kBlockBytes)], kBlockBytes, codes + b * kBlockBytes);
    scales[b] = file_scales[size_t(b)];
  };
  if (values_.packed(*e.param, row, rows, {codes, size_t(blocks * kBlockBytes)},
                     {scales, size_t(blocks)})) {
    for (int64_t b = 0; b < blocks; ++b) {
      if (same_block(codes + b * kBlockBytes, scales[b], &file_codes[size_t(b * kBlockBytes)],
                     file_scales[size_t(b)])) {
        keep_file(b);
      }
    }
    return;
  }
  // No NVFP4 copy lives in this run: blocks whose master still is what was loaded stay.
  const std::vector<float> now = master_rows(e, row, rows);
  const std::vector<float> before =
      loaded_rows(*e.loaded, row, rows, *values_.master_type(*e.param));
  const float g = read_global_scale(base_, t);
  for (int64_t b = 0; b < blocks; ++b) {
    const float* x = now.data() + b * kNvfp4Block;
    if (std::equal(x, x + kNvfp4Block, before.data() + b * kNvfp4Block)) {
      keep_file(b);
    } else {
      quantize_block(x, values_.rule(), g, codes + b * kBlockBytes, scales + b);
    }
  }
}

}  // namespace nibble
