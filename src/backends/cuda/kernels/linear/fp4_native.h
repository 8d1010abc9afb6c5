// SPDX-License-Identifier: MIT
// W4A4 on FP4 tensor cores (compute capability 10.0 and later) through cuBLASLt.
#pragma once
#include "backends/cuda/kernels/linear/linear.h"

namespace nibble::cuda {

// Where the tensor cores multiply FP4: many tokens (few are read faster from the packed layout),
// rows of codes that begin at multiples of 16 bytes.
bool native_fp4_device(const Context& c);
bool native_fp4_fits(const Context& c, const Tensor& out, const Tensor& x, const LinearWeight& w);
// out = x rounded to NVFP4 by rule absmax, times w. In pieces, through scratch memory.
void native_fp4_product(const Context& c, Tensor out, Tensor x, const LinearWeight& w);

// Codes [rows, in/2] in the canonical order, then scales in the order of quant/swizzle.h.
struct Fp4Operand {
  uint8_t* codes;
  uint8_t* scales;
  int64_t rows;
};
size_t fp4_operand_bytes(int64_t rows, int64_t in);
Fp4Operand fp4_operand(std::byte* memory, int64_t rows, int64_t in);
// The most rows, a multiple of 128, whose operand fits into n_bytes.
int64_t fp4_rows_within(size_t n_bytes, int64_t in);

// fp4_native_operands.cu: an operand from rows of a packed weight (row_begin % 16 == 0), and from
// activations.
void make_weight_operand(const Context& c, const Fp4Operand& to, const LinearWeight& w,
                         int64_t row_begin);
void make_activation_operand(const Context& c, const Fp4Operand& to, Tensor x);

}  // namespace nibble::cuda
