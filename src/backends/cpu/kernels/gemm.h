// SPDX-License-Identifier: MIT
// One matrix product for many rows: C [M, N] = A . B with both factors copied into contiguous
// panels (converted, transposed or decoded on the way) and a register-blocked kernel over them.
//
// An element of C is always the same sequence of operations: fused multiply-adds along K from zero
// in chunks of gemm_chunk(K), the chunks added in order. So it depends neither on M and N, nor on
// where in C it lies, nor on threads; targets with fused multiply-adds agree bit for bit.
//
// Where both factors are exact in bf16 and the processor multiplies pairs of bf16 (vdpbf16ps), the
// panels hold those: twice the products an instruction, half the bytes. That instruction is two
// fused multiply-adds with a rounding each, the upper half of a pair first; the earlier element of
// K lies there, so the sequence of operations and the bits are those of fp32 panels. Only numbers
// below 2^-126 differ: it takes them as zero and makes no such sums.
#pragma once
#include <cstdint>

#include "backend/backend.h"

namespace nibble::cpu {

struct Context;

// Equal parts of at most 320, in whole blocks of 16: 32 columns of B are then 40 KiB.
constexpr int64_t gemm_chunk(int64_t k) {
  const int64_t parts = (k + 319) / 320;
  return parts == 0 ? 0 : ((k + parts - 1) / parts + 15) / 16 * 16;
}

// What 32 bits of a panel are: a step of the kernels along K.
enum class GemmElement { f32, bf16_pair };
constexpr int64_t gemm_depth(GemmElement e) { return e == GemmElement::bf16_pair ? 2 : 1; }
// 32-bit steps of K elements; an odd K ends with a zero.
constexpr int64_t gemm_steps(GemmElement e, int64_t k) {
  return (k + gemm_depth(e) - 1) / gemm_depth(e);
}

// A factor seen as [outer, K]: outer are the rows of A or the columns of B, K is summed over.
struct GemmFactor {
  enum class Layout {
    outer_by_k,         // dense [outer, K]
    k_by_outer,         // dense [K, outer]
    packed_k_by_outer,  // NVFP4 with K along its rows (W of dx = dy . W). Only for B.
    packed_outer_by_k,  // NVFP4 with K along its columns (W of y = x . W^T). Only for B.
  };
  Layout layout;
  int64_t outer, k;
  Tensor dense;                     // f32, bf16 or f16; rows may be strided
  const uint8_t* packed = nullptr;  // kernels/packed_layout.h
  const float* k_scale = nullptr;   // [K]: multiplies the factor; for packed_k_by_outer
};

// What becomes of the products: c = scale * sum, or added to c.
struct GemmOutput {
  Tensor c;                             // f32, bf16 or f16 [M, N]; rows may be strided
  const float* column_scale = nullptr;  // [N]
  Accumulate accumulate = Accumulate::no;
  // With Accumulate::yes and bf16: stochastic by the random bits of (seed, stream, offset +
  // element), which needs a contiguous c. Otherwise to nearest.
  enum class Rounding { nearest, stochastic } rounding = Rounding::nearest;
  uint64_t seed = 0, stream = 0, offset = 0;
};

// What this product takes on this processor, A being of type `a`.
GemmElement gemm_element(DType a, const GemmFactor& b);

// Rows of A in steps, 32 bits each and moved as floats whatever they hold; gemm_element says which.
struct GemmRows {
  GemmElement element;
  const float* steps;
  int64_t stride, count;
};

void gemm(Context& c, const GemmOutput& out, const GemmFactor& a, const GemmFactor& b);
// The same bits where A has few rows and B has them along K (`outer_by_k`).
void gemm_few(Context& c, const GemmOutput& out, const GemmRows& a, const GemmFactor& b);

// --- Between gemm.cpp (blocking, threads) and gemm_kernels.cpp (SIMD) ---
struct GemmTile {
  int64_t rows, cols;  // of C that one call of the inner kernel computes
};
GemmTile gemm_tile();
// Panels of B: tile.cols columns, all of K.
void gemm_pack_b(GemmElement element, const GemmFactor& b, int64_t panel_begin, int64_t panel_end,
                 float* panels);

// One thread's share: rows and columns of C in units of tiles. The panels of B begin at
// `panels`, for column tile `first_panel`.
struct GemmTask {
  GemmElement element;
  int64_t row_begin, row_end, col_begin, col_end;
  const float* panels;
  int64_t first_panel;
  float *a_panels, *tiles;  // scratch, see gemm_scratch
};
// For A and for sums, of a task of this many tiles.
struct GemmScratch {
  int64_t a_panels, tiles;
};
GemmScratch gemm_scratch(GemmElement element, int64_t k, int64_t tile_rows, int64_t tile_cols);
void gemm_task(const GemmOutput& out, const GemmFactor& a, const GemmTask& task);
int64_t gemm_few_scratch(int64_t rows);  // floats
void gemm_few_panels(const GemmOutput& out, const GemmRows& x, const GemmFactor& b, int64_t begin,
                     int64_t end, float* scratch);

}  // namespace nibble::cpu
