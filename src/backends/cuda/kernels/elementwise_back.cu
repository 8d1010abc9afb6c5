// SPDX-License-Identifier: MIT
// Gradients of SwiGLU, of the embedding (deterministic: rows sorted by id, one block a run of equal
// ids) and of the row gather (scatter).
#include "backends/cuda/device_functions/dependent_launch.cuh"
#include "backends/cuda/device_functions/grad_write.cuh"
#include "backends/cuda/device_functions/rows.cuh"
#include "backends/cuda/kernels/kernels.h"
#include "backends/cuda/launch.h"

namespace nibble::cuda {
namespace {

constexpr int kThreads = 256;

template <class T, int W>
__global__ void swiglu_back_kernel(Rows<T> dgate, Rows<T> dup, Rows<const T> dout,
                                   Rows<const T> gate, Rows<const T> up, int64_t n, int64_t cols) {
  pdl_enter();
  for_each_pack<W>(n, cols, [&](int64_t row, int64_t col) {
    float d[W], g[W], u[W];
    load_f32<W>(dout.at(row, col), d);
    load_f32<W>(gate.at(row, col), g);
    load_f32<W>(up.at(row, col), u);
#pragma unroll
    for (int k = 0; k < W; ++k) {
      const float s = sigmoid(g[k]), silu = g[k] * s;
      u[k] = d[k] * u[k] * (s + silu * (1.0f - s));
      g[k] = d[k] * silu;
    }
    store_f32<W>(dgate.at(row, col), u);
    store_f32<W>(dup.at(row, col), g);
  });
}

// One block per position of `order`; only the first of a run of equal ids works.
template <class D, class T>
__global__ void embed_back_kernel(D* dtable, int64_t stride, const T* dx, int64_t dx_stride,
                                  const int32_t* ids, const int32_t* order, int64_t n, int64_t cols,
                                  GradWrite write) {
  pdl_wait();  // a gradient is what the optimizer reads next: nothing may run ahead
  const int64_t first = blockIdx.x, id = ids[order[first]];
  if (first > 0 && ids[order[first - 1]] == id) return;
  int64_t last = first + 1;
  while (last < n && ids[order[last]] == id) ++last;
  for (int64_t c = threadIdx.x; c < cols; c += kThreads) {
    float sum = 0;
    for (int64_t p = first; p < last; ++p) sum += to_f32(dx[int64_t(order[p]) * dx_stride + c]);
    write_gradient(dtable, id * stride + c, sum, write);
  }
}

template <class T>
__global__ void scatter_kernel(Rows<T> out, Rows<const T> x, const int32_t* rows, int64_t n,
                               int64_t cols) {
  pdl_enter();
  for_each_pack<1>(n, cols,
                   [&](int64_t row, int64_t col) { *out.at(rows[row], col) = *x.at(row, col); });
}

void zero_rows(const Context& c, Tensor t) {
  const size_t e = dtype_bytes(t.dtype);
  if (t.numel() == 0) return;
  NIBBLE_CUDA(cudaMemset2DAsync(t.data, size_t(t.row_stride) * e, 0, size_t(t.inner()) * e,
                                size_t(t.dim(0)), c.stream));
}

}  // namespace

void swiglu_back(const Context& c, Tensor dgate, Tensor dup, Tensor dout, Tensor gate, Tensor up) {
  with_float(gate.dtype, [&](auto t) {
    using T = decltype(t);
    with_width(
        [&](auto w) {
          constexpr int W = decltype(w)::value;
          launch(c, grid_for_packs(c, gate.numel() / W), swiglu_back_kernel<T, W>,
                 rows_of<T>(dgate), rows_of<T>(dup), rows_of<const T>(dout), rows_of<const T>(gate),
                 rows_of<const T>(up), gate.dim(0), gate.dim(1));
        },
        dgate, dup, dout, gate, up);
  });
}

void embed_back(const Context& c, Tensor dtable, Tensor dx, Tensor ids, Tensor order,
                const GradWrite& write) {
  if (write.accumulate == Accumulate::no) zero_rows(c, dtable);
  with_float(dtable.dtype, [&](auto d) {
    with_float(dx.dtype, [&](auto t) {
      using D = decltype(d);
      using T = decltype(t);
      launch(c, {dim3(unsigned(dx.dim(0))), dim3(kThreads)}, embed_back_kernel<D, T>,
             ptr<D>(dtable), dtable.row_stride, ptr<const T>(dx), dx.row_stride,
             ptr<const int32_t>(ids), ptr<const int32_t>(order), dx.dim(0), dx.dim(1), write);
    });
  });
}

void scatter_rows(const Context& c, Tensor out, Tensor x, Tensor rows) {
  zero_rows(c, out);
  with_float(x.dtype, [&](auto t) {
    using T = decltype(t);
    launch(c, grid_for_packs(c, x.numel()), scatter_kernel<T>, rows_of<T>(out), rows_of<const T>(x),
           ptr<const int32_t>(rows), x.dim(0), x.dim(1));
  });
}

}  // namespace nibble::cuda
