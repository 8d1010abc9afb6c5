// SPDX-License-Identifier: MIT
// Embedding and row gathers, SwiGLU, addition: ops without a reduction over the model's width.
// Grid-stride loops over packs of eight elements (device_functions/rows.cuh).
#include "backends/cuda/device_functions/dependent_launch.cuh"
#include "backends/cuda/device_functions/rows.cuh"
#include "backends/cuda/kernels/kernels.h"
#include "backends/cuda/launch.h"

namespace nibble::cuda {
namespace {

constexpr int kThreads = 256;

template <int W, class T, class S>
__global__ void copy_rows_kernel(Rows<T> out, Rows<const S> x, const int32_t* index, int64_t n,
                                 int64_t cols) {
  pdl_enter();
  for_each_pack<W>(n, cols, [&](int64_t row, int64_t col) {
    float v[W];
    load_f32<W>(x.at(index[row], col), v);
    store_f32<W>(out.at(row, col), v);
  });
}

// SwiGLU, bound by memory: 2048 x 9728 take 30.5 us for 120 MB, 73 of the 80 that are read not from
// the L2 cache (a copy moves as many bytes a second); with one pack a thread in flight 34. Column
// stripes instead of rows 32; more packs in flight, software prefetch or addresses without
// divisions are no faster.
constexpr int kSwigluPacks = 2;   // in flight a thread
constexpr int kSwigluBlocks = 5;  // resident per SM

template <int W, class T>
__global__ void __launch_bounds__(kThreads, kSwigluBlocks)
    swiglu_kernel(Rows<T> out, Rows<const T> gate, Rows<const T> up, int64_t n, int64_t cols) {
  pdl_enter();
  using Part = Raw<T, W>;
  struct Both {
    Part gate, up;
  };
  for_loaded_packs<W, kSwigluPacks>(
      n, cols,
      [&](int64_t row, int64_t col) -> Both {
        return {Part::load_streaming(gate.at(row, col)), Part::load_streaming(up.at(row, col))};
      },
      [&](int64_t row, int64_t col, const Both& in) {
        float g[W], u[W];
        in.gate.to_f32(g), in.up.to_f32(u);
#pragma unroll
        for (int i = 0; i < W; ++i) g[i] = g[i] * sigmoid(g[i]) * u[i];
        Part::from_f32(g).store(out.at(row, col));
      });
}

template <int W, class T>
__global__ void add_kernel(Rows<T> out, Rows<const T> a, Rows<const T> b, int64_t n, int64_t cols) {
  pdl_enter();
  for_each_pack<W>(n, cols, [&](int64_t row, int64_t col) {
    float x[W], y[W];
    load_f32<W>(a.at(row, col), x);
    load_f32<W>(b.at(row, col), y);
#pragma unroll
    for (int i = 0; i < W; ++i) x[i] += y[i];
    store_f32<W>(out.at(row, col), x);
  });
}

// Rows `index` of x, converted.
void copy_rows(const Context& c, Tensor out, Tensor x, Tensor index) {
  with_float(out.dtype, [&](auto t) {
    with_float(x.dtype, [&](auto s) {
      using T = decltype(t);
      using S = decltype(s);
      with_width(
          [&](auto w) {
            constexpr int W = decltype(w)::value;
            launch(c, grid_for_packs(c, out.numel() / W), copy_rows_kernel<W, T, S>,
                   rows_of<T>(out), rows_of<const S>(x), ptr<const int32_t>(index), out.dim(0),
                   out.inner());
          },
          out, x);
    });
  });
}

}  // namespace

void embed(const Context& c, Tensor out, Tensor table, Tensor ids) {
  copy_rows(c, out, table, ids);
}

void gather_rows(const Context& c, Tensor out, Tensor x, Tensor rows) {
  copy_rows(c, out, x, rows);
}

void swiglu(const Context& c, Tensor out, Tensor gate, Tensor up) {
  with_float(out.dtype, [&](auto t) {
    using T = decltype(t);
    with_width(
        [&](auto w) {
          constexpr int W = decltype(w)::value;
          launch(c, grid_for_packs(c, out.numel() / W, kSwigluPacks, kSwigluBlocks),
                 swiglu_kernel<W, T>, rows_of<T>(out), rows_of<const T>(gate), rows_of<const T>(up),
                 out.dim(0), out.inner());
        },
        out, gate, up);
  });
}

void add(const Context& c, Tensor out, Tensor a, Tensor b) {
  with_float(out.dtype, [&](auto t) {
    using T = decltype(t);
    with_width(
        [&](auto w) {
          constexpr int W = decltype(w)::value;
          launch(c, grid_for_packs(c, out.numel() / W), add_kernel<W, T>, rows_of<T>(out),
                 rows_of<const T>(a), rows_of<const T>(b), out.dim(0), out.inner());
        },
        out, a, b);
  });
}

}  // namespace nibble::cuda
