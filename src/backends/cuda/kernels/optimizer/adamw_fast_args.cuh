// SPDX-License-Identifier: MIT
// Arguments of adamw_fast.cu: constants of the launch, one task per parameter, lookup tables.
// Philox is split so that the host does whatever is the same for all elements.
#pragma once
#include "backends/cuda/kernels/optimizer/adamw_generic.cuh"
#include "optim/moment_cells.h"

namespace nibble::cuda {
namespace {

// Philox round keys of a seed; of a stream, the part of the first two rounds that does not depend
// on the element.
struct PhiloxKeys {
  uint32_t of_round[2 * kPhiloxRounds];

  PhiloxKeys() = default;
  explicit PhiloxKeys(uint64_t seed) {
    uint32_t k0 = uint32_t(seed), k1 = uint32_t(seed >> 32);
    for (int round = 0; round < kPhiloxRounds; ++round) {
      of_round[2 * round] = k0, of_round[2 * round + 1] = k1;
      k0 += kPhiloxKeyStep0;
      k1 += kPhiloxKeyStep1;
    }
  }
};
struct PhiloxStream {
  uint32_t first2, second0, second2, third2;  // the keys, and what the index has no part in

  PhiloxStream() = default;
  PhiloxStream(const PhiloxKeys& keys, uint64_t stream) {
    // Rounds 1 and 2 with 0 for whatever depends on the index.
    const auto product = [](uint32_t a, uint32_t b) { return uint64_t(a) * b; };
    uint32_t c[4] = {0, 0, uint32_t(stream), uint32_t(stream >> 32)};
    philox_round(c, keys.of_round[0], keys.of_round[1], product);
    first2 = c[2], c[2] = 0;
    philox_round(c, keys.of_round[2], keys.of_round[3], product);
    second0 = c[0], second2 = c[2], third2 = c[3] ^ keys.of_round[5];
  }
};
// philox(seed, stream, index), index < 2^32.
__device__ __forceinline__ void philox(const PhiloxKeys& keys, const PhiloxStream& t,
                                       uint32_t index, uint32_t* c) {
  // Products of 0 vanish at compile time.
  const auto product = [](uint32_t a, uint32_t b) { return uint64_t(a) * b; };
  c[0] = index, c[1] = c[2] = c[3] = 0;
  philox_round(c, 0, t.first2, product);
  c[0] = c[1] = 0;
  philox_round(c, t.second0, t.second2, product);
  c[3] = 0;
  philox_round(c, keys.of_round[4], t.third2, product);
#pragma unroll
  for (int i = 3; i < kPhiloxRounds; ++i) {
    philox_round(c, keys.of_round[2 * i], keys.of_round[2 * i + 1], product);
  }
}

// Floats of [low, high), as their bits.
struct BitRange {
  uint32_t low, size;

  BitRange() = default;
  BitRange(float l, float high)
      : low(__builtin_bit_cast(uint32_t, l)), size(__builtin_bit_cast(uint32_t, high) - low) {}
  __device__ __forceinline__ bool holds(float x) const { return __float_as_uint(x) - low < size; }
  bool operator==(const BitRange&) const = default;
};

// Constants of the launch. Moments are kept as m / first_out and v / second_out: then a gradient
// needs no factor.
struct FastTerms {
  float first_in, second_in;    // beta1 / first_out, beta2 / second_out
  float first_out, second_out;  // rest1 * grad_scale, rest2 * grad_scale^2
  BitRange first, second;       // of a block's maxima
  PhiloxKeys keys;
  AdamwTerms<float> terms{AdamwStep{}};  // for the generic path, which has lr and decay by task
  uint64_t seed = 0;
};
// A parameter, or a range of one. Laid out in 16-byte groups, which are read at once.
struct alignas(16) FastTask {
  // Tiles of kTileBlocks moment blocks, numbered through all tasks of the launch: this task's are
  // [.., tiles_end), and tile 0 of the parameter would be number first_tile. Tiles of whole blocks
  // that can be copied in bulk are [staged, staged + staged_count).
  uint32_t first_tile, tiles_end, staged, staged_count;
  void* master;
  uint8_t* m;
  uint8_t *v, *packed;
  float *m_scales, *v_scales;
  PhiloxStream philox;
  float root, eps;             // step = m / (sqrt(v) * root + eps), everything folded in
  float shrink;                // lr * weight decay
  uint32_t row_offset;         // as in AdamwArgs
  uint32_t row_blocks, units;  // NVFP4 blocks of a row, and units
  uint32_t magic,
      shift;  // division by multiplication: block / row_blocks = block * magic >> (32 + shift)
  const void* grad;
  int64_t end;                      // of the elements
  uint32_t first_block, whole_end;  // moment blocks; from whole_end on not whole
  float lr, decay;
  uint64_t stream;
};
constexpr uint32_t kTileBlocks = kAdamwThreads / kLanes;  // one a warp
constexpr uint32_t kFastTasks = 23;

struct FastBatch {
  FastTerms terms;
  unsigned* claimed;  // two counters, 0 between launches: claims, and blocks that have ended
  uint32_t tasks, tiles;
  bool all_staged;
  FastTask task[kFastTasks];
};
static_assert(sizeof(FastBatch) <= 4096);  // kernel arguments of every driver

struct alignas(16) FastTables {
  float m[256], v[256];  // values of the codes
  DynamicCells cells;
  float4 integer;  // 2^23 in .x, for integers to floats; else it is computed eight times

  constexpr FastTables() : m(), v(), cells(), integer{0x1p23f, 0, 0, 0} {
    for (int i = 0; i < 256; ++i) {
      m[i] = dynamic_value(kDynamicMap, uint8_t(i));
      v[i] = log_value(kLogMap, uint8_t(i));
    }
  }
};
static_assert(sizeof(FastTables) % 16 == 0);
__device__ const FastTables kFastTables;  // not constant memory: lanes read different words

}  // namespace
}  // namespace nibble::cuda
