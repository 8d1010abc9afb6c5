// SPDX-License-Identifier: MIT
// Element types. NVFP4 has none of its own: a packed weight is codes and scales, both bytes
// (quant/nvfp4.h).
#pragma once
#include <complex>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace nibble {

// Storage-only 16-bit floats; arithmetic happens in float after conversion (core/half.h).
struct bf16_t {
  uint16_t bits;
};
struct f16_t {
  uint16_t bits;
};

enum class DType : uint8_t { f64, f32, f16, bf16, f8_e4m3, i64, i32, i16, i8, u8, boolean, c128 };

constexpr size_t dtype_bytes(DType t) {
  switch (t) {
    case DType::c128: return 16;
    case DType::f64:
    case DType::i64: return 8;
    case DType::f32:
    case DType::i32: return 4;
    case DType::f16:
    case DType::bf16:
    case DType::i16: return 2;
    case DType::f8_e4m3:
    case DType::i8:
    case DType::u8:
    case DType::boolean: return 1;
  }
  return 0;
}

constexpr std::string_view dtype_name(DType t) {
  switch (t) {
    case DType::c128: return "c128";
    case DType::f64: return "f64";
    case DType::i64: return "i64";
    case DType::f32: return "f32";
    case DType::i32: return "i32";
    case DType::f16: return "f16";
    case DType::bf16: return "bf16";
    case DType::i16: return "i16";
    case DType::f8_e4m3: return "f8_e4m3";
    case DType::i8: return "i8";
    case DType::u8: return "u8";
    case DType::boolean: return "bool";
  }
  return "?";
}

constexpr bool is_float(DType t) {
  return t == DType::f64 || t == DType::f32 || t == DType::f16 || t == DType::bf16 ||
         t == DType::f8_e4m3 || t == DType::c128;
}

template <class T>
struct DTypeOf;
template <>
struct DTypeOf<std::complex<double>> {
  static constexpr DType value = DType::c128;
};
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::f64;
};
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::f32;
};
template <>
struct DTypeOf<f16_t> {
  static constexpr DType value = DType::f16;
};
template <>
struct DTypeOf<bf16_t> {
  static constexpr DType value = DType::bf16;
};
template <>
struct DTypeOf<int64_t> {
  static constexpr DType value = DType::i64;
};
template <>
struct DTypeOf<int32_t> {
  static constexpr DType value = DType::i32;
};
template <>
struct DTypeOf<int16_t> {
  static constexpr DType value = DType::i16;
};
template <>
struct DTypeOf<int8_t> {
  static constexpr DType value = DType::i8;
};
template <>
struct DTypeOf<uint8_t> {
  static constexpr DType value = DType::u8;
};
template <class T>
inline constexpr DType dtype_of = DTypeOf<T>::value;

}  // namespace nibble
