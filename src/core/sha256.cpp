// SPDX-License-Identifier: MIT
#include "core/sha256.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "core/file.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#elif defined(__aarch64__) && !defined(__clang__)  // which spells the attribute differently
#define NIBBLE_SHA_ARM 1
#include <arm_neon.h>
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace nibble {
namespace {

alignas(16) constexpr uint32_t kRound[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

uint32_t big_endian(const uint8_t* p) {
  return uint32_t(p[0]) << 24 | uint32_t(p[1]) << 16 | uint32_t(p[2]) << 8 | uint32_t(p[3]);
}

void compress_portable(uint32_t* state, const uint8_t* blocks, size_t count) {
  for (; count > 0; --count, blocks += 64) {
    uint32_t w[64];
    for (int i = 0; i < 16; ++i) w[i] = big_endian(blocks + 4 * i);
    for (int i = 16; i < 64; ++i) {
      const uint32_t s0 = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ (w[i - 15] >> 3);
      const uint32_t s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ (w[i - 2] >> 10);
      w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    uint32_t v[8];
    std::copy_n(state, 8, v);
    // The words take turns instead of moving on: after eight rounds each is back in its place.
    const auto round = [&](int i, uint32_t a, uint32_t b, uint32_t c, uint32_t& d, uint32_t e,
                           uint32_t f, uint32_t g, uint32_t& h) {
      const uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
      const uint32_t t1 = h + s1 + (g ^ (e & (f ^ g))) + kRound[i] + w[i];
      const uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
      d += t1;
      h = t1 + s0 + ((a & b) | (c & (a | b)));
    };
    auto& [a, b, c, d, e, f, g, h] = v;
    for (int i = 0; i < 64; i += 8) {
      round(i, a, b, c, d, e, f, g, h);
      round(i + 1, h, a, b, c, d, e, f, g);
      round(i + 2, g, h, a, b, c, d, e, f);
      round(i + 3, f, g, h, a, b, c, d, e);
      round(i + 4, e, f, g, h, a, b, c, d);
      round(i + 5, d, e, f, g, h, a, b, c);
      round(i + 6, c, d, e, f, g, h, a, b);
      round(i + 7, b, c, d, e, f, g, h, a);
    }
    for (int i = 0; i < 8; ++i) state[i] += v[i];
  }
}

#if defined(__x86_64__)
// The instructions do two rounds at a time on the state as (ABEF, CDGH).
__attribute__((target("sha,sse4.1"))) void compress_sha(uint32_t* state, const uint8_t* blocks,
                                                        size_t count) {
  const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
  const auto load = [](const void* p) __attribute__((target("sha,sse4.1"))) {
    return _mm_loadu_si128(static_cast<const __m128i*>(p));
  };
  const __m128i dcba = _mm_shuffle_epi32(load(state), 0xb1);
  const __m128i efgh = _mm_shuffle_epi32(load(state + 4), 0x1b);
  __m128i abef = _mm_alignr_epi8(dcba, efgh, 8);
  __m128i cdgh = _mm_blend_epi16(efgh, dcba, 0xf0);
  for (; count > 0; --count, blocks += 64) {
    const __m128i abef_before = abef, cdgh_before = cdgh;
    __m128i w[4];
    for (int i = 0; i < 4; ++i) w[i] = _mm_shuffle_epi8(load(blocks + 16 * i), swap);
    for (int i = 0; i < 16; ++i) {
      __m128i& now = w[i % 4];  // words 4 i .. 4 i + 3
      if (i >= 4) {
        const __m128i last = w[(i + 3) % 4];
        const __m128i nine = _mm_alignr_epi8(last, w[(i + 2) % 4], 4);
        now = _mm_sha256msg1_epu32(now, w[(i + 1) % 4]);
        now = _mm_sha256msg2_epu32(_mm_add_epi32(now, nine), last);
      }
      const __m128i sum = _mm_add_epi32(now, load(kRound + 4 * i));
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sum);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(sum, 0x0e));
    }
    abef = _mm_add_epi32(abef, abef_before);
    cdgh = _mm_add_epi32(cdgh, cdgh_before);
  }
  const __m128i feba = _mm_shuffle_epi32(abef, 0x1b), dchg = _mm_shuffle_epi32(cdgh, 0xb1);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(state), _mm_blend_epi16(feba, dchg, 0xf0));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(state + 4), _mm_alignr_epi8(dchg, feba, 8));
}

bool has_sha_instructions() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
  return (b & (1u << 29)) != 0 && __builtin_cpu_supports("sse4.1");
}
#elif defined(NIBBLE_SHA_ARM)
// Four rounds at a time.
__attribute__((target("+crypto"))) void compress_sha(uint32_t* state, const uint8_t* blocks,
                                                     size_t count) {
  uint32x4_t abcd = vld1q_u32(state), efgh = vld1q_u32(state + 4);
  for (; count > 0; --count, blocks += 64) {
    const uint32x4_t abcd_before = abcd, efgh_before = efgh;
    uint32x4_t w[4];
    for (int i = 0; i < 4; ++i) {
      w[i] = vreinterpretq_u32_u8(vrev32q_u8(vld1q_u8(blocks + 16 * i)));
    }
    for (int i = 0; i < 16; ++i) {
      uint32x4_t& now = w[i % 4];  // words 4 i .. 4 i + 3
      if (i >= 4) {
        now = vsha256su1q_u32(vsha256su0q_u32(now, w[(i + 1) % 4]), w[(i + 2) % 4], w[(i + 3) % 4]);
      }
      const uint32x4_t sum = vaddq_u32(now, vld1q_u32(kRound + 4 * i));
      const uint32x4_t abcd_now = abcd;
      abcd = vsha256hq_u32(abcd, efgh, sum);
      efgh = vsha256h2q_u32(efgh, abcd_now, sum);
    }
    abcd = vaddq_u32(abcd, abcd_before);
    efgh = vaddq_u32(efgh, efgh_before);
  }
  vst1q_u32(state, abcd);
  vst1q_u32(state + 4, efgh);
}

bool has_sha_instructions() { return (getauxval(AT_HWCAP) & HWCAP_SHA2) != 0; }
#endif

}  // namespace

Sha256::Sha256(Sha256Path path)
    : compress_(compress_portable), state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                           0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19} {
#if defined(__x86_64__) || defined(NIBBLE_SHA_ARM)
  static const bool instructions = has_sha_instructions();
  if (path == Sha256Path::fastest && instructions) compress_ = compress_sha;
#else
  (void)path;
#endif
}

void Sha256::update(std::span<const std::byte> bytes) {
  const auto* p = reinterpret_cast<const uint8_t*>(bytes.data());
  size_t n = bytes.size();
  total_ += n;
  if (pending_size_ > 0) {
    const size_t taken = std::min(n, pending_.size() - pending_size_);
    std::copy_n(p, taken, pending_.data() + pending_size_);
    pending_size_ += taken;
    p += taken;
    n -= taken;
    if (pending_size_ < pending_.size()) return;
    compress_(state_.data(), pending_.data(), 1);
    pending_size_ = 0;
  }
  compress_(state_.data(), p, n / 64);
  pending_size_ = n % 64;
  std::copy_n(p + (n - pending_size_), pending_size_, pending_.data());
}

Sha256Digest Sha256::finish() {
  const uint64_t bits = total_ * 8;
  std::array<std::byte, 72> tail{};  // 0x80, zeros up to 56 of 64, the length
  tail[0] = std::byte(0x80);
  const size_t zeros_end = pending_size_ < 56 ? 56 - pending_size_ : 120 - pending_size_;
  for (size_t i = 0; i < 8; ++i) tail[zeros_end + i] = std::byte(uint8_t(bits >> (56 - 8 * i)));
  update(std::span(tail).first(zeros_end + 8));
  Sha256Digest digest;
  for (size_t i = 0; i < 32; ++i) digest[i] = uint8_t(state_[i / 4] >> (24 - 8 * (i % 4)));
  return digest;
}

std::string hex_text(std::span<const uint8_t> bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const uint8_t b : bytes) {
    text += kDigits[b >> 4];
    text += kDigits[b & 15];
  }
  return text;
}

std::string sha256_hex(std::string_view text) {
  Sha256 hash;
  hash.update(text);
  return hex_text(hash.finish());
}

std::string sha256_file(const std::filesystem::path& path,
                        const std::function<bool(uint64_t done)>& keep_going) {
  return sha256_file(InputFile(path), keep_going);
}

std::string sha256_file(const InputFile& file,
                        const std::function<bool(uint64_t done)>& keep_going) {
  constexpr uint64_t kPiece = 1 << 20;
  std::vector<std::byte> piece(size_t(std::min(kPiece, file.size())));
  Sha256 hash;
  for (uint64_t at = 0; at < file.size(); at += piece.size()) {
    piece.resize(size_t(std::min(kPiece, file.size() - at)));
    file.read(at, piece);
    hash.update(piece);
    if (keep_going && !keep_going(at + piece.size())) return "";
  }
  return hex_text(hash.finish());
}

}  // namespace nibble
