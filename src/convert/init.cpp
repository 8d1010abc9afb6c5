// SPDX-License-Identifier: MIT
#include "convert/init.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <vector>

#include "convert/raw_cast.h"
#include "core/error.h"
#include "core/half.h"
#include "core/progress.h"
#include "core/rng.h"
#include "model/params.h"

namespace nibble {
namespace {

// The normal quantile of the upper tail probability p in (0, 0.5]; Acklam's rational
// approximation, relative error below 1.2e-9.
double upper_quantile(double p) {
  constexpr double a[] = {-3.969683028665376e+01, 2.209460984245205e+02,  -2.759285104469687e+02,
                          1.383577518672690e+02,  -3.066479806614716e+01, 2.506628277459239e+00};
  constexpr double b[] = {-5.447609879822406e+01, 1.615858368580409e+02, -1.556989798598866e+02,
                          6.680131188771972e+01, -1.328068155288572e+01};
  constexpr double c[] = {-7.784894002430293e-03, -3.223964580411365e-01, -2.400758277161838e+00,
                          -2.549732539343734e+00, 4.374664141464968e+00,  2.938163982698783e+00};
  constexpr double d[] = {7.784695709041462e-03, 3.224671290700398e-01, 2.445134137142996e+00,
                          3.754408661907416e+00};
  if (p < 0.02425) {
    const double q = std::sqrt(-2 * std::log(p));
    return -(((((c[0] * q + c[1]) * q + c[2]) * q + c[3]) * q + c[4]) * q + c[5]) /
           ((((d[0] * q + d[1]) * q + d[2]) * q + d[3]) * q + 1);
  }
  const double q = 0.5 - p, r = q * q;
  return (((((a[0] * r + a[1]) * r + a[2]) * r + a[3]) * r + a[4]) * r + a[5]) * q /
         (((((b[0] * r + b[1]) * r + b[2]) * r + b[3]) * r + b[4]) * r + 1);
}

// |z| by linear interpolation over p: 64 pieces an octave of p keep the error under 1e-4, and the
// tail reaches 6.3 standard deviations. Indexed by the top bits of the float p itself.
class NormalTable {
 public:
  NormalTable() {
    for (size_t i = 0; i < value_.size(); ++i) {
      const uint32_t bits = uint32_t(i + kFirst) << kShift;
      const double p = std::bit_cast<float>(bits);
      value_[i] = float(upper_quantile(std::min(0.5, p)));
    }
  }
  // 31 bits of magnitude and a sign.
  float operator()(uint32_t random) const {
    const float p = (float(random >> 1) + 0.5f) * 0x1p-32f;  // (0, 0.5]
    const uint32_t bits = std::bit_cast<uint32_t>(p);
    const size_t i = (bits >> kShift) - kFirst;
    const float t = float(bits & ((1u << kShift) - 1)) * (1.0f / float(1u << kShift));
    const float z = value_[i] + t * (value_[i + 1] - value_[i]);
    return std::bit_cast<float>(std::bit_cast<uint32_t>(z) ^ (random << 31));
  }

 private:
  static constexpr int kShift = 17;                      // 23 - 6 mantissa bits
  static constexpr uint32_t kFirst = (127u - 33u) << 6;  // p = 2^-33
  std::array<float, size_t(33) * 64 + 2> value_;
};

}  // namespace

void random_normal(uint64_t seed, uint64_t stream, uint64_t begin, int64_t n, float sd,
                   float* out) {
  static const NormalTable table;
  const auto value = [&](uint32_t random) {
    const float x = to_float(to_bf16(table(random) * sd));
    // Below the normal range fp16 has multiples of 2^-24 only.
    return std::abs(x) < 0x1p-14f ? to_float(to_f16(x)) : x;
  };
  uint64_t i = begin;
  const uint64_t end = begin + uint64_t(n);
  while (i < end) {
    const auto random = philox(seed, stream, i / 4);
    if (i % 4 == 0 && end - i >= 4) {
      for (size_t j = 0; j < 4; ++j) out[j] = value(random[j]);
      out += 4;
      i += 4;
    } else {
      *out++ = value(random[i % 4]);
      ++i;
    }
  }
}

InitSummary init_weights(const Config& config, const std::filesystem::path& out,
                         Container container, std::optional<DType> dtype, uint64_t seed,
                         ThreadPool& pool) {
  const DType type = dtype.value_or(container == Container::dat ? DType::f16 : DType::bf16);
  const float sd = float(config.initializer_range);
  if (type == DType::f16 && sd > 8000) {  // 6.3 standard deviations must stay below 65504
    throw_format("initializer_range {} is too wide for fp16; use --dtype bf16 or fp32", sd);
  }
  const std::vector<ParamSpec> table = parameter_table(config);
  std::vector<const ParamSpec*> wanted;
  std::vector<TensorInfo> infos;
  for (const ParamSpec& p : table) {
    if (p.slot == ParamSlot::head && config.tied && container != Container::dat) continue;
    wanted.push_back(&p);
    TensorInfo info;
    info.name = p.name;
    info.dtype = type;
    info.shape = p.shape;
    infos.push_back(std::move(info));
  }
  const auto writer = make_writer(container, out, std::move(infos));
  InitSummary summary{wanted.size(), writer->payload_bytes(), config.parameter_count()};

  constexpr int64_t kChunk = 4 << 20, kGrain = 1 << 16;  // elements; a multiple of Philox's four
  std::vector<std::byte> bytes(size_t(kChunk) * dtype_bytes(type));
  std::vector<std::vector<float>> scratch(size_t(pool.size()), std::vector<float>(size_t(kGrain)));
  Progress progress("init", summary.payload_bytes);
  for (const ParamSpec* p : wanted) {
    // A tied head repeats the embedding: the same stream.
    const bool copy_of_embed = p->slot == ParamSlot::head && config.tied;
    const uint64_t stream = copy_of_embed ? 0 : uint64_t(p - table.data());
    for (int64_t begin = 0; begin < p->numel(); begin += kChunk) {
      const int64_t n = std::min(kChunk, p->numel() - begin);
      pool.parallel_for((n + kGrain - 1) / kGrain, 1, [&](int64_t first, int64_t last, int thread) {
        float* const x = scratch[size_t(thread)].data();
        for (int64_t piece = first; piece < last; ++piece) {
          const int64_t at = piece * kGrain, count = std::min(kGrain, n - at);
          if (p->is_matrix()) {
            random_normal(seed, stream, uint64_t(begin + at), count, sd, x);
          } else {
            std::fill_n(x, count, p->slot == ParamSlot::qkv_bias ? 0.0f : 1.0f);
          }
          cast_from_f32(x, count, type, bytes.data() + size_t(at) * dtype_bytes(type));
        }
      });
      const size_t n_bytes = size_t(n) * dtype_bytes(type);
      writer->append(std::span(bytes).first(n_bytes));
      progress.advance(n_bytes);
    }
  }
  writer->finish();
  return summary;
}

}  // namespace nibble
