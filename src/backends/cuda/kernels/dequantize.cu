// SPDX-License-Identifier: MIT
// Packed NVFP4 to 16-bit floats, for products by cuBLASLt, and the row scales after them.
#include "backends/cuda/device/dequantize.cuh"

#include "backends/cuda/device/dependency.cuh"
#include "backends/cuda/device/types.cuh"
#include "backends/cuda/kernels/linear.h"
#include "backends/cuda/launch.h"

namespace nibble::cuda {
namespace {

constexpr int kThreads = 256;

// A warp a unit of 16 rows by 128 columns; a lane one word (8 columns) of every second row: 16
// lanes write 256 consecutive bytes.
template <class T>
__global__ void __launch_bounds__(kThreads)
    dequantize_kernel(T* out, const uint8_t* packed, int64_t in, int64_t rows, int64_t cols) {
  const int64_t across = units_across(cols), units = strips_of(rows) * across;
  const int64_t unit = int64_t(blockIdx.x) * (kThreads / 32) + threadIdx.x / 32;
  if (unit >= units) return;
  const int lane = int(threadIdx.x) % 32, word = lane % 16, odd = lane / 16;
  const uint8_t* u = packed + (unit / across * units_across(in) + unit % across) * kUnitBytes;
  uint32_t codes[8];
  // Scales of rows r and r + 8 lie side by side: rows 2 i + odd, i < 4, and those 8 further.
  uint16_t scales[4];
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    codes[i] = __ldcs(reinterpret_cast<const uint32_t*>(u) + (2 * i + odd) * 16 + word);
  }
  const int b = word / 2;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint8_t* s = u + kUnitCodeBytes + 16 * (2 * i + odd) + 4 * (b / 2) + b % 2;
    scales[i] = uint16_t(s[0] | s[2] << 8);
  }
  // Only weights have been read so far; `out` is scratch that the kernel before may still read.
  enter();
  const int64_t row0 = unit / across * kUnitRows, col = unit % across * kUnitCols + 8 * word;
  if (col >= cols) return;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int64_t row = row0 + 2 * i + odd;
    const uint8_t scale = uint8_t(i < 4 ? scales[i] : scales[i - 4] >> 8);
    if (row < rows) {
      *reinterpret_cast<uint4*>(out + row * cols + col) = dequantize8<T>(codes[i], scale);
    }
  }
}

template <class T>
__global__ void scale_columns_kernel(T* out, int64_t stride, const float* sums, int64_t sums_stride,
                                     const float* row_scale, int64_t n, int64_t cols) {
  enter();
  const int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= n * cols) return;
  out[i / cols * stride + i % cols] =
      from_f32<T>(sums[i / cols * sums_stride + i % cols] * row_scale[i % cols]);
}

}  // namespace

void dequantize_panel(const Context& c, Tensor out, const LinearWeight& w, int64_t row_begin,
                      int64_t col_begin) {
  const int64_t units = strips_of(out.dim(0)) * units_across(out.dim(1));
  const uint8_t* packed =
      w.packed.as<uint8_t>() + packed_size(row_begin, w.in) + units_across(col_begin) * kUnitBytes;
  const Grid grid{dim3(blocks_for(units, kThreads / 32)), dim3(kThreads)};
  if (out.dtype == DType::bf16) {
    launch(c, grid, dequantize_kernel<bf16>, ptr<bf16>(out), packed, w.in, out.dim(0), out.dim(1));
  } else {
    launch(c, grid, dequantize_kernel<f16>, ptr<f16>(out), packed, w.in, out.dim(0), out.dim(1));
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
