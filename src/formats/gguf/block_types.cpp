// SPDX-License-Identifier: MIT
#include "formats/gguf/block_types.h"

#include "core/error.h"

namespace nibble {
namespace {

using namespace gguf;

template <void (*One)(const uint8_t*, float*), int64_t Elements, int64_t Bytes>
void each(const uint8_t* blocks, int64_t count, float* out) {
  for (int64_t i = 0; i < count; ++i) One(blocks + i * Bytes, out + i * Elements);
}

template <void (*One)(const uint8_t*, float*), int64_t Elements, int64_t Bytes>
constexpr BlockType blocks(uint32_t code, std::string_view name, int bits) {
  return {code, name, DType::f32, Elements, Bytes, bits, each<One, Elements, Bytes>};
}
constexpr BlockType plain(uint32_t code, std::string_view name, DType dtype, int64_t bytes) {
  return {code, name, dtype, 1, bytes, 0, nullptr};
}

constexpr BlockType kTypes[] = {
    plain(0, "F32", DType::f32, 4),
    plain(1, "F16", DType::f16, 2),
    plain(30, "BF16", DType::bf16, 2),
    plain(28, "F64", DType::f64, 8),
    plain(24, "I8", DType::i8, 1),
    plain(25, "I16", DType::i16, 2),
    plain(26, "I32", DType::i32, 4),
    plain(27, "I64", DType::i64, 8),
    blocks<expand_q4_0, kSmall, 18>(2, "Q4_0", 4),
    blocks<expand_q4_1, kSmall, 20>(3, "Q4_1", 4),
    blocks<expand_q5_0, kSmall, 22>(6, "Q5_0", 5),
    blocks<expand_q5_1, kSmall, 24>(7, "Q5_1", 5),
    blocks<expand_q8_0, kSmall, 34>(8, "Q8_0", 8),
    blocks<expand_q2_k, kSuper, 84>(10, "Q2_K", 2),
    blocks<expand_q3_k, kSuper, 110>(11, "Q3_K", 3),
    blocks<expand_q4_k, kSuper, 144>(12, "Q4_K", 4),
    blocks<expand_q5_k, kSuper, 176>(13, "Q5_K", 5),
    blocks<expand_q6_k, kSuper, 210>(14, "Q6_K", 6),
    blocks<expand_iq2_xxs, kSuper, 66>(16, "IQ2_XXS", 2),
    blocks<expand_iq2_xs, kSuper, 74>(17, "IQ2_XS", 2),
    blocks<expand_iq3_xxs, kSuper, 98>(18, "IQ3_XXS", 3),
    blocks<expand_iq1_s, kSuper, 50>(19, "IQ1_S", 1),
    blocks<expand_iq4_nl, kSmall, 18>(20, "IQ4_NL", 4),
    blocks<expand_iq3_s, kSuper, 110>(21, "IQ3_S", 3),
    blocks<expand_iq2_s, kSuper, 82>(22, "IQ2_S", 2),
    blocks<expand_iq4_xs, kSuper, 136>(23, "IQ4_XS", 4),
    blocks<expand_iq1_m, kSuper, 56>(29, "IQ1_M", 1),
    blocks<expand_tq1_0, kSuper, 54>(34, "TQ1_0", 1),
    blocks<expand_tq2_0, kSuper, 66>(35, "TQ2_0", 2),
    blocks<expand_mxfp4, kSmall, 17>(39, "MXFP4", 4),
    blocks<expand_nvfp4, 64, 36>(40, "NVFP4", 4),
};

struct Unread {
  uint64_t code;
  std::string_view name;
};
constexpr Unread kUnread[] = {{4, "Q4_2"},      {5, "Q4_3"},      {9, "Q8_1"},      {15, "Q8_K"},
                              {31, "Q4_0_4_4"}, {32, "Q4_0_4_8"}, {33, "Q4_0_8_8"}, {41, "Q1_0"}};

}  // namespace

const BlockType* find_block_type(uint64_t code) {
  for (const BlockType& t : kTypes) {
    if (t.code == code) return &t;
  }
  return nullptr;
}

const BlockType* find_plain_type(DType dtype) {
  for (const BlockType& t : kTypes) {
    if (!t.expand && t.dtype == dtype) return &t;
  }
  return nullptr;
}

const BlockType& block_type_named(std::string_view name) {
  for (const BlockType& t : kTypes) {
    if (t.name == name) return t;
  }
  throw_internal("there is no block type {}", name);
}

std::string_view unread_block_type(uint64_t code) {
  for (const Unread& t : kUnread) {
    if (t.code == code) return t.name;
  }
  return {};
}

}  // namespace nibble
