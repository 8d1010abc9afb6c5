// SPDX-License-Identifier: MIT
// How the moments of a parameter lie in memory, and blocks of them to and from floats, for host
// and device. Zeroed memory holds moments that are all 0, in every format.
//
// A moment is one buffer of moment_bytes(format, n): codes padded to whole blocks of 256, then
// (nvfp4) one E4M3 byte per 16 elements, then one fp32 scale per block. f32 and bf16 are plain
// arrays. Padding keeps its bytes.
//
// Random bits, one 32-bit word an element: w = random_bits(seed, stream, element). The master
// takes the low 16 of w, v of int8 and nvfp4 the high 16. bf16 moments take a second word, of
// stream ^ kMomentStream: m the low 16, v the high 16.
#pragma once
#include <cfloat>

#include "core/half.h"
#include "optim/moment_codes.h"
#include "quant/rounding.h"

namespace nibble {

constexpr uint64_t kMomentStream = 0x6d6f6d656e747321;

// The stream of the words that round moments.
constexpr uint64_t moment_stream(MomentFormat format, uint64_t stream) {
  return format == MomentFormat::bf16 ? stream ^ kMomentStream : stream;
}

struct MomentView {
  uint8_t* codes;
  uint8_t* small_scales;  // nvfp4: 16 a block
  float* scales;          // a block's

  NIBBLE_HOST_DEVICE MomentView(MomentFormat format, void* memory, int64_t n)
      : codes(static_cast<uint8_t*>(memory)), small_scales(nullptr), scales(nullptr) {
    const int64_t blocks = (n + kMomentBlock - 1) / kMomentBlock;
    if (format == MomentFormat::nvfp4) {
      small_scales = codes + blocks * kMomentBlock / 2;
      scales = reinterpret_cast<float*>(small_scales + blocks * kMomentBlock / 16);
    } else if (format == MomentFormat::int8 || format == MomentFormat::int8_linear) {
      scales = reinterpret_cast<float*>(codes + blocks * kMomentBlock);
    }
  }
};

// The largest magnitude; NaN when there is one.
NIBBLE_HOST_DEVICE inline float moment_amax(const float* x, int64_t n) {
  uint32_t top = 0;  // magnitudes order like integers, NaN above all
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t a = __builtin_bit_cast(uint32_t, x[i]) & 0x7fffffffu;
    top = a > top ? a : top;
  }
  return __builtin_bit_cast(float, top);
}

// Scales have floors, far below anything that matters beside eps, so that their inverses stay
// finite and the smallest second moment they can express stays a normal number.
constexpr float kMomentScaleFloor = 0x1p-94f;  // int8: 2^(-94 - 255/8) is above 2^-126
constexpr float kRootScaleFloor = 0x1p-53f;    // nvfp4: (2^-53 * 2^-9 * 0.5)^2 = 2^-126

NIBBLE_HOST_DEVICE inline float int8_moment_scale(float amax) {
  return amax < kMomentScaleFloor ? (amax > 0 ? kMomentScaleFloor : 0.0f) : amax;
}
NIBBLE_HOST_DEVICE inline float inverse_or_zero(float scale) {
  return scale == 0 ? 0.0f : 1.0f / scale;
}
NIBBLE_HOST_DEVICE inline float nvfp4_moment_scale(float amax, float floor) {
  if (amax == 0) return 0;
  const float s = amax / (kE4m3Max * kE2m1Max);
  return s < floor ? floor : s;
}
NIBBLE_HOST_DEVICE inline uint8_t nvfp4_small_scale(float amax, float scale) {
  if (amax == 0) return 0;
  const uint8_t byte = e4m3_encode(amax / kE2m1Max / scale);
  return byte == 0 ? uint8_t(1) : byte;
}

// bf16, and v > 0 never becomes 0.
NIBBLE_HOST_DEVICE inline bf16_t stochastic_bf16_v(float v, uint32_t random16) {
  const bf16_t h = stochastic_bf16(v, random16);
  return h.bits == 0 && v > 0 ? bf16_t{1} : h;
}

enum class Moment { first, second };

// Elements [0, count) of block `b` as floats.
template <Moment kMoment>
NIBBLE_HOST_DEVICE inline void decode_moment(MomentFormat format, const MomentView& x, int64_t b,
                                             int64_t count, float* out) {
  const int64_t at = b * kMomentBlock;
  for (int64_t i = 0; i < count; ++i) {
    switch (format) {
      case MomentFormat::f32: out[i] = reinterpret_cast<const float*>(x.codes)[at + i]; break;
      case MomentFormat::bf16:
        out[i] = to_float(reinterpret_cast<const bf16_t*>(x.codes)[at + i]);
        break;
      case MomentFormat::int8: {
        const uint8_t code = x.codes[at + i];
        const float unit =
            kMoment == Moment::first ? dynamic_value(kDynamicMap, code) : log_value(kLogMap, code);
        out[i] = unit * x.scales[b];
        break;
      }
      case MomentFormat::int8_linear: out[i] = float(int8_t(x.codes[at + i])) * x.scales[b]; break;
      case MomentFormat::nvfp4: {
        const uint8_t pair = x.codes[(at + i) / 2];
        const uint8_t code = uint8_t(i % 2 ? pair >> 4 : pair & 15);
        const float s = e4m3_value(x.small_scales[(at + i) / 16]);
        const float value = e2m1_value(code) * s * x.scales[b];
        out[i] = kMoment == Moment::first ? value : value * value;
        break;
      }
    }
  }
}

// nvfp4 codes of `count` values (for v: its square roots).
template <Moment kMoment>
NIBBLE_HOST_DEVICE inline void encode_nvfp4_moment(const MomentView& x, int64_t b, int64_t count,
                                                   const float* in, const uint32_t* words) {
  const float scale = nvfp4_moment_scale(moment_amax(in, count),
                                         kMoment == Moment::first ? FLT_MIN : kRootScaleFloor);
  x.scales[b] = scale;
  for (int64_t begin = 0; begin < count; begin += 16) {
    const int64_t n = count - begin < 16 ? count - begin : 16;
    const int64_t at = b * kMomentBlock + begin;
    const float amax = moment_amax(in + begin, n);
    x.small_scales[at / 16] = nvfp4_small_scale(amax, scale);
    const float s = e4m3_value(x.small_scales[at / 16]) * scale;
    for (int64_t i = 0; i < n; ++i) {
      const float y = amax == 0 ? 0.0f : in[begin + i] / s;
      const uint8_t code =
          kMoment == Moment::first ? e2m1_encode(y) : e2m1_stochastic(y, words[begin + i] >> 16);
      uint8_t& pair = x.codes[(at + i) / 2];
      pair = uint8_t(i % 2 ? (pair & 15) | code << 4 : (pair & 0xf0) | code);
    }
  }
}

// Elements [0, count) of block `b` from floats; words are those of moment_stream.
template <Moment kMoment>
NIBBLE_HOST_DEVICE inline void encode_moment(MomentFormat format, const MomentView& x, int64_t b,
                                             int64_t count, const float* in,
                                             const uint32_t* words) {
  constexpr bool kFirst = kMoment == Moment::first;
  const int64_t at = b * kMomentBlock;
  switch (format) {
    case MomentFormat::f32:
      for (int64_t i = 0; i < count; ++i) reinterpret_cast<float*>(x.codes)[at + i] = in[i];
      return;
    case MomentFormat::bf16:
      for (int64_t i = 0; i < count; ++i) {
        reinterpret_cast<bf16_t*>(x.codes)[at + i] =
            kFirst ? stochastic_bf16(in[i], words[i]) : stochastic_bf16_v(in[i], words[i] >> 16);
      }
      return;
    case MomentFormat::int8: {
      const float scale = int8_moment_scale(moment_amax(in, count));
      const float inverse = inverse_or_zero(scale);
      x.scales[b] = scale;
      for (int64_t i = 0; i < count; ++i) {
        const float r = in[i] * inverse;
        x.codes[at + i] =
            kFirst ? dynamic_code(kDynamicMap, r) : log_code(kLogMap, r, words[i] >> 16);
      }
      return;
    }
    case MomentFormat::int8_linear: {
      const float scale = moment_amax(in, count) / 127;
      x.scales[b] = scale;
      for (int64_t i = 0; i < count; ++i) x.codes[at + i] = linear_code(in[i], scale);
      return;
    }
    case MomentFormat::nvfp4: {
      if (kFirst) return encode_nvfp4_moment<kMoment>(x, b, count, in, words);
      float root[kMomentBlock] = {};
      for (int64_t i = 0; i < count; ++i) root[i] = std::sqrt(in[i]);
      return encode_nvfp4_moment<kMoment>(x, b, count, root, words);
    }
  }
}

}  // namespace nibble
