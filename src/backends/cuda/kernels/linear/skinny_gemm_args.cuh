// SPDX-License-Identifier: MIT
// Arguments common to the GEMMs on packed NVFP4 weights with few tokens (skinny_gemm_mma.cu,
// skinny_gemm_wgmma.cu) and mixed_gemm.cu: out [n, rows] = x [n, in] W^T.
#pragma once
#include "backends/cuda/device_functions/packed_layout.cuh"
#include "backends/cuda/device_functions/types.cuh"
#include "backends/cuda/kernels/linear/linear.h"

namespace nibble::cuda {

struct SkinnyGemmArgs {
  const uint8_t* packed = nullptr;
  const void* x = nullptr;
  const float* row_scale = nullptr;
  void* out = nullptr;     // [n, rows], or gate_up [n, 2 F]
  void* swiglu = nullptr;  // [n, F], or null
  int64_t x_stride = 0, out_stride = 0, swiglu_stride = 0;
  DType out_type = DType::f32;
  int n = 0, rows = 0, in = 0, units = 0;
  int strips = 0;        // of the weight; with SwiGLU of one half (gate or up)
  bool aligned = false;  // rows of x may be read 16 bytes at a time
};

// act empty: no swiglu.
inline void fill_args(SkinnyGemmArgs& j, Tensor out, Tensor act, Tensor x, const LinearWeight& w) {
  j.packed = w.packed.as<uint8_t>();
  j.x = x.data, j.x_stride = x.row_stride;
  j.row_scale = w.row_scale ? ptr<const float>(w.row_scale) : nullptr;
  j.out = out.data, j.out_stride = out.row_stride, j.out_type = out.dtype;
  if (act) j.swiglu = act.data, j.swiglu_stride = act.row_stride;
  j.n = int(x.dim(0)), j.rows = int(w.out), j.in = int(w.in), j.units = int(units_across(w.in));
  j.strips = int(strips_of(act ? w.out / 2 : w.out));
  j.aligned = reinterpret_cast<uintptr_t>(x.data) % 16 == 0 && x.row_stride % 8 == 0;
}

}  // namespace nibble::cuda
