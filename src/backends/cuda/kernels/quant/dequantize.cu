// SPDX-License-Identifier: MIT
// Panels of packed NVFP4 weights to 16-bit floats [rows, cols] for cuBLASLt, and the row scales
// applied to its fp32 output. One warp a unit (16 x 128), 16 lanes store 256 consecutive bytes.
//
// Bound by memory: 2.6 bytes a weight, most of them written, at 4.2 TB/s on an H200 (60 us for the
// weights of a Qwen3-4B layer). Smaller panels, which stay in the L2 cache, cost the GEMMs more
// than they spare. Tried and dropped: dequantising the next panel on the four SMs that the tiles of
// a GEMM of 2048 tokens leave free; an SM can write 32 bytes a clock, so four of them take 1.3
// times as long as all GEMMs of a layer.
#include "backends/cuda/device_functions/dequantize.cuh"

#include "backends/cuda/device_functions/dependent_launch.cuh"
#include "backends/cuda/device_functions/types.cuh"
#include "backends/cuda/kernels/linear/linear.h"
#include "backends/cuda/launch.h"

namespace nibble::cuda {
namespace {

constexpr int kThreads = 256;

// A lane's part of a unit: one word (8 columns) of every second row.
struct UnitOfLane {
  uint32_t codes[8];
  uint32_t scales[4];  // of rows r = 2 i + odd, i < 4, in byte 0, and r + 8 in byte 2
};

__device__ __forceinline__ UnitOfLane load_unit(const uint8_t* u, int word, int odd) {
  UnitOfLane l;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    l.codes[i] = __ldcs(reinterpret_cast<const uint32_t*>(u) + (2 * i + odd) * 16 + word);
  }
  const int b = word / 2;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    // Blocks 2 q and 2 q + 1 of row r, then of row r + 8.
    const uint8_t* s = u + kUnitCodeBytes + 16 * (2 * i + odd) + 4 * (b / 2);
    l.scales[i] = __ldcs(reinterpret_cast<const uint32_t*>(s)) >> 8 * (b % 2);
  }
  return l;
}

template <class T>
struct PanelOut {
  T* data;
  const uint8_t* packed;
  int rows, cols, across, across_in;  // units

  __device__ const uint8_t* unit(int i) const {
    return packed + (int64_t(i / across) * across_in + i % across) * kUnitBytes;
  }
  __device__ void write(int i, const UnitOfLane& l, int word, int odd) const {
    const int row0 = i / across * int(kUnitRows), col = i % across * int(kUnitCols) + 8 * word;
    if (col >= cols) return;
    T* const out = data + int64_t(row0 + odd) * cols + col;
    // Fast path without row checks: most strips are whole.
    if (row0 + int(kUnitRows) <= rows) {
      write_rows<true>(out, l, 0);
    } else {
      write_rows<false>(out, l, rows - row0 - odd);
    }
  }

 private:
  template <bool kWhole>
  __device__ void write_rows(T* out, const UnitOfLane& l, int rows_left) const {
    const int64_t two_rows = int64_t(2) * cols;
    T* further = out + 4 * two_rows;
#pragma unroll
    for (int k = 0; k < 4; ++k, out += two_rows, further += two_rows) {
      const float2 scale = e4m3x2_to_float2(__byte_perm(l.scales[k], 0, 0x20));
      if (kWhole || 2 * k < rows_left) {
        *reinterpret_cast<uint4*>(out) = dequantize8<T>(l.codes[k], scale.x);
      }
      if (kWhole || 2 * k + 8 < rows_left) {
        *reinterpret_cast<uint4*>(further) = dequantize8<T>(l.codes[k + 4], scale.y);
      }
    }
  }
};

template <class T>
__global__ void __launch_bounds__(kThreads) dequantize_kernel(PanelOut<T> p, int units) {
  const int unit = int(blockIdx.x) * (kThreads / 32) + int(threadIdx.x) / 32;
  if (unit >= units) return;
  const int lane = int(threadIdx.x) % 32, word = lane % 16, odd = lane / 16;
  const UnitOfLane l = load_unit(p.unit(unit), word, odd);
  // Only weights were read so far; `out` is scratch that the preceding kernel may still read.
  pdl_enter();
  p.write(unit, l, word, odd);
}

template <class T>
PanelOut<T> panel_out(Tensor out, const void* packed, int64_t in, int64_t row_begin,
                      int64_t col_begin) {
  return {ptr<T>(out),
          static_cast<const uint8_t*>(packed) + packed_size(row_begin, in) +
              units_across(col_begin) * kUnitBytes,
          int(out.dim(0)),
          int(out.dim(1)),
          int(units_across(out.dim(1))),
          int(units_across(in))};
}

template <class T>
__global__ void scale_columns_kernel(T* out, int64_t stride, const float* sums, int64_t sums_stride,
                                     const float* row_scale, int64_t n, int64_t cols) {
  pdl_enter();
  const int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= n * cols) return;
  out[i / cols * stride + i % cols] =
      from_f32<T>(sums[i / cols * sums_stride + i % cols] * row_scale[i % cols]);
}

}  // namespace

void dequantize_panel(const Context& c, Tensor out, const LinearWeight& w, int64_t row_begin,
                      int64_t col_begin) {
  const int64_t units = strips_of(out.dim(0)) * units_across(out.dim(1));
  const Grid grid{dim3(blocks_for(units, kThreads / 32)), dim3(kThreads)};
  const auto start = [&](auto t) {
    using T = decltype(t);
    launch(c, grid, dequantize_kernel<T>,
           panel_out<T>(out, w.packed.data, w.in, row_begin, col_begin), int(units));
  };
  if (out.dtype == DType::bf16) {
    start(bf16());
  } else {
    start(f16());
  }
}

void scale_columns(const Context& c, Tensor out, Tensor sums, const float* row_scale) {
  with_float(out.dtype, [&](auto t) {
    using T = decltype(t);
    launch(c, {dim3(blocks_for(sums.numel(), kThreads)), dim3(kThreads)}, scale_columns_kernel<T>,
           ptr<T>(out), out.row_stride, ptr<const float>(sums), sums.row_stride, row_scale,
           sums.dim(0), sums.dim(1));
  });
}

}  // namespace nibble::cuda
