// SPDX-License-Identifier: MIT
// Packs and unpacks weights between the canonical layout in host memory and the device layout
// (device_functions/packed_layout.cuh), staged through scratch memory. One thread per block of 16;
// the copies over the bus dominate.
#include "backends/cuda/device_functions/packed_layout.cuh"

#include <algorithm>

#include "backends/cuda/device_functions/dependent_launch.cuh"
#include "backends/cuda/kernels/kernels.h"
#include "backends/cuda/launch.h"

namespace nibble::cuda {
namespace {

constexpr int kThreads = 256;
// Enough for the copy engine to run at full speed.
constexpr size_t kStageBytes = size_t(32) << 20;

__global__ void pack_kernel(uint8_t* packed, int64_t in, int64_t row_begin, int64_t rows,
                            const uint64_t* codes, const uint8_t* scales) {
  pdl_wait();
  const int64_t blocks = in / 16, i = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= rows * blocks) return;
  write_block(packed, block_place(in, row_begin + i / blocks, i % blocks), codes[i], scales[i]);
}

__global__ void unpack_kernel(const uint8_t* packed, int64_t in, int64_t row_begin, int64_t rows,
                              uint64_t* codes, uint8_t* scales) {
  pdl_enter();
  const int64_t blocks = in / 16, i = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= rows * blocks) return;
  codes[i] = read_block(packed, block_place(in, row_begin + i / blocks, i % blocks), scales + i);
}

void check_scales(int64_t in, int64_t row_begin, int64_t rows, const uint8_t* scales) {
  const int64_t blocks = in / 16;
  for (int64_t i = 0; i < rows * blocks; ++i) {
    if ((scales[i] & 0x7f) == kE4m3NanCode) {
      throw_format("NVFP4 weight: the scale of row {}, columns {}.. is NaN (byte {:#04x})",
                   row_begin + i / blocks, i % blocks * 16, scales[i]);
    }
  }
}

// Calls f(first row, rows, staged codes, staged scales) for pieces of `rows` rows.
template <class F>
void in_pieces(const Context& c, int64_t in, int64_t rows, F&& f) {
  const int64_t piece = std::max<int64_t>(1, int64_t(kStageBytes) / std::max<int64_t>(in, 1));
  for (int64_t r = 0; r < rows; r += piece) {
    const int64_t n = std::min(piece, rows - r);
    std::byte* scales = c.scratch() + n * in / 2;  // eight bytes a block: stays aligned
    f(r, n, reinterpret_cast<uint64_t*>(c.scratch()), reinterpret_cast<uint8_t*>(scales));
  }
}

}  // namespace

size_t packed_bytes(int64_t out, int64_t in) { return packed_size(out, in); }

void pack_rows(const Context& c, const LinearWeight& w, int64_t row_begin, int64_t rows,
               const uint8_t* codes, const uint8_t* scales) {
  check_scales(w.in, row_begin, rows, scales);
  const int64_t blocks = w.in / 16;
  in_pieces(c, w.in, rows, [&](int64_t r, int64_t n, uint64_t* staged, uint8_t* staged_scales) {
    NIBBLE_CUDA(cudaMemcpyAsync(staged, codes + r * blocks * 8, size_t(n * blocks * 8),
                                cudaMemcpyHostToDevice, c.stream));
    NIBBLE_CUDA(cudaMemcpyAsync(staged_scales, scales + r * blocks, size_t(n * blocks),
                                cudaMemcpyHostToDevice, c.stream));
    launch(c, {dim3(blocks_for(n * blocks, kThreads)), dim3(kThreads)}, pack_kernel,
           w.packed.as<uint8_t>(), w.in, row_begin + r, n, staged, staged_scales);
  });
  // The copies may still read the caller's memory.
  NIBBLE_CUDA(cudaStreamSynchronize(c.stream));
}

void unpack_rows(const Context& c, const LinearWeight& w, int64_t row_begin, int64_t rows,
                 uint8_t* codes, uint8_t* scales) {
  const int64_t blocks = w.in / 16;
  in_pieces(c, w.in, rows, [&](int64_t r, int64_t n, uint64_t* staged, uint8_t* staged_scales) {
    launch(c, {dim3(blocks_for(n * blocks, kThreads)), dim3(kThreads)}, unpack_kernel,
           w.packed.as<uint8_t>(), w.in, row_begin + r, n, staged, staged_scales);
    NIBBLE_CUDA(cudaMemcpyAsync(codes + r * blocks * 8, staged, size_t(n * blocks * 8),
                                cudaMemcpyDeviceToHost, c.stream));
    NIBBLE_CUDA(cudaMemcpyAsync(scales + r * blocks, staged_scales, size_t(n * blocks),
                                cudaMemcpyDeviceToHost, c.stream));
    NIBBLE_CUDA(cudaStreamSynchronize(c.stream));
  });
}

}  // namespace nibble::cuda
