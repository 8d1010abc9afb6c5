// SPDX-License-Identifier: MIT
// AdamW in one pass: reads gradient, master and moments, writes master, moments and the NVFP4 copy.
#include "backends/cuda/device/dependency.cuh"
#include "backends/cuda/kernels/adamw.h"
#include "backends/cuda/kernels/kernels.h"
#include "backends/cuda/kernels/optimizer_step.cuh"
#include "backends/cuda/launch.h"

namespace nibble::cuda {
namespace {

// Writes weights, so the next kernel may not start early.
template <class M, class G, bool kInt8>
__global__ void __launch_bounds__(kAdamwThreads) adamw_kernel(const __grid_constant__ AdamwArgs a) {
  __shared__ Tables tables;
  if (kInt8 && threadIdx.x < sizeof(Tables) / 4) {
    reinterpret_cast<uint32_t*>(&tables)[threadIdx.x] =
        reinterpret_cast<const uint32_t*>(&kTables)[threadIdx.x];
  }
  __syncthreads();
  wait_for_previous();
  step_any<M, G, kInt8>(a, tables,
                        a.begin + (int64_t(blockIdx.x) * kAdamwThreads + threadIdx.x) * kOwn);
}
// fp32 throughout and no copy: norms, which are small. Their time is that of fetching the code, so
// it is short.
__global__ void __launch_bounds__(kAdamwThreads)
    adamw_plain_kernel(float* master, const float* grad, float* m, float* v, int64_t begin,
                       int64_t end, AdamwTerms<float> terms) {
  wait_for_previous();
  const int64_t i = begin + int64_t(blockIdx.x) * kAdamwThreads + threadIdx.x;
  if (i < end) adamw_element(terms, grad[i], m[i], v[i], master[i]);
}
bool aligned16(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

template <class F>
void with_state_type(DType t, F&& f) {
  if (t == DType::bf16) {
    f(bf16{});
  } else {
    f(float{});
  }
}

}  // namespace

void adamw_step(const Context& c, Tensor master, Tensor grad, Tensor m, Tensor v,
                MomentFormat format, int64_t begin, int64_t count, const AdamwStep& step,
                const Requantize& rq) {
  const int64_t n = master.numel();
  const AdamwPlaces places{master.data, MomentView(format, m.data, n),
                           MomentView(format, v.data, n)};
  adamw_at(c, places, master.dtype, grad, format, begin, count, step, rq);
}

void adamw_at(const Context& c, const AdamwPlaces& at, DType type, Tensor grad, MomentFormat format,
              int64_t begin, int64_t count, const AdamwStep& step, const Requantize& rq) {
  AdamwArgs a{at.master,
              grad.data,
              at.m,
              at.v,
              format,
              begin,
              begin + count,
              AdamwTerms<float>(step),
              step.seed,
              step.stream,
              nullptr,
              1,
              0,
              nullptr,
              rq.rule,
              step.from == UpdateFrom::quantised,
              aligned16(at.master) && aligned16(grad.data) && aligned16(at.m.codes) &&
                  aligned16(at.v.codes),
              step.rounding};
  if (rq.weight) {
    a.packed = rq.weight->packed.as<uint8_t>();
    a.in = rq.weight->in, a.row_offset = rq.row_offset;
    a.row_scale = rq.weight->row_scale ? ptr<const float>(rq.weight->row_scale) : nullptr;
  }
  if (format == MomentFormat::int8 && type == DType::bf16 && grad.dtype == DType::bf16 &&
      adamw_short(c, a)) {
    return;
  }
  if (format == MomentFormat::f32 && type == DType::f32 && grad.dtype == DType::f32 && !rq.weight) {
    launch(c, {dim3(blocks_for(count, kAdamwThreads)), dim3(kAdamwThreads)}, adamw_plain_kernel,
           static_cast<float*>(a.master), ptr<const float>(grad),
           reinterpret_cast<float*>(a.m.codes), reinterpret_cast<float*>(a.v.codes), begin,
           begin + count, a.terms);
    return;
  }
  const Grid grid{dim3(blocks_for(count, kAdamwThreads * kOwn)), dim3(kAdamwThreads)};
  with_state_type(type, [&](auto mt) {
    with_state_type(grad.dtype, [&](auto gt) {
      using M = decltype(mt);
      using G = decltype(gt);
      launch(c, grid,
             format == MomentFormat::int8 ? adamw_kernel<M, G, true> : adamw_kernel<M, G, false>,
             a);
    });
  });
}

}  // namespace nibble::cuda
