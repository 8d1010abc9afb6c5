// SPDX-License-Identifier: MIT
// AdamW, fused in one pass over memory: reads gradient, master and moments, writes master, moments
// and the requantised NVFP4 copy. Dispatch, in this order: adamw_fast.cu (bf16 masters and
// gradients, int8 moments: nearly all parameters), adamw_fp32_kernel (fp32 throughout, no copy:
// norms), adamw_kernel (adamw_generic.cuh, anything).
#include "backends/cuda/device_functions/dependent_launch.cuh"
#include "backends/cuda/kernels/kernels.h"
#include "backends/cuda/kernels/optimizer/adamw.h"
#include "backends/cuda/kernels/optimizer/adamw_generic.cuh"
#include "backends/cuda/launch.h"

namespace nibble::cuda {
namespace {

// Generic: one thread per eight elements. Kernels here write weights, so they never launch
// dependents early.
template <class M, class G, bool kInt8>
__global__ void __launch_bounds__(kAdamwThreads) adamw_kernel(const __grid_constant__ AdamwArgs a) {
  __shared__ Tables tables;
  if (kInt8 && threadIdx.x < sizeof(Tables) / 4) {
    reinterpret_cast<uint32_t*>(&tables)[threadIdx.x] =
        reinterpret_cast<const uint32_t*>(&kTables)[threadIdx.x];
  }
  __syncthreads();
  pdl_wait();
  generic_step<M, G, kInt8>(
      a, tables, a.begin + (int64_t(blockIdx.x) * kAdamwThreads + threadIdx.x) * kPerLane);
}

// fp32 throughout and no copy: norms, which are many and small, so one launch has many of them
// (multi-tensor apply): 4 us for 40 (one: 3).
struct Fp32Task {
  float *master, *m, *v;
  const float* grad;
  int64_t begin, end;
  AdamwTerms<float> terms{AdamwStep{}};
};
constexpr unsigned kFp32Tasks = 40;
struct Fp32Batch {
  Fp32Task task[kFp32Tasks];
};
static_assert(sizeof(Fp32Batch) <= 4096);  // kernel arguments of every driver

// Grid (blocks, tasks).
__global__ void __launch_bounds__(kAdamwThreads)
    adamw_fp32_kernel(const __grid_constant__ Fp32Batch b) {
  pdl_wait();
  const Fp32Task& k = b.task[blockIdx.y];
  for (int64_t i = k.begin + int64_t(blockIdx.x) * kAdamwThreads + threadIdx.x; i < k.end;
       i += int64_t(gridDim.x) * kAdamwThreads) {
    adamw_element(k.terms, k.grad[i], k.m[i], k.v[i], k.master[i]);
  }
}

void adamw_fp32(const Context& c, std::vector<AdamwArgs>& all) {
  Fp32Batch b;
  unsigned tasks = 0, blocks = 0;
  const auto flush = [&] {
    launch(c, {dim3(std::min(blocks, 4 * unsigned(c.sm_count)), tasks), dim3(kAdamwThreads)},
           adamw_fp32_kernel, b);
    tasks = blocks = 0;
  };
  std::erase_if(all, [&](const AdamwArgs& a) {
    if (a.format != MomentFormat::f32 || a.type != DType::f32 || a.grad_type != DType::f32 ||
        a.packed) {
      return false;
    }
    if (tasks == kFp32Tasks) flush();
    b.task[tasks++] = {static_cast<float*>(a.master),
                       reinterpret_cast<float*>(a.m.codes),
                       reinterpret_cast<float*>(a.v.codes),
                       static_cast<const float*>(a.grad),
                       a.begin,
                       a.end,
                       a.terms};
    blocks = std::max(blocks, blocks_for(a.end - a.begin, kAdamwThreads));
    return true;
  });
  flush();
}

template <class F>
void with_state_type(DType t, F&& f) {
  if (t == DType::bf16) {
    f(bf16{});
  } else {
    f(float{});
  }
}

void adamw_generic(const Context& c, const AdamwArgs& a) {
  const Grid grid{dim3(blocks_for(a.end - a.begin, kAdamwThreads * kPerLane)), dim3(kAdamwThreads)};
  with_state_type(a.type, [&](auto mt) {
    with_state_type(a.grad_type, [&](auto gt) {
      using M = decltype(mt);
      using G = decltype(gt);
      launch(c, grid,
             a.format == MomentFormat::int8 ? adamw_kernel<M, G, true> : adamw_kernel<M, G, false>,
             a);
    });
  });
}

AdamwArgs args_of(const AdamwPlaces& at, const AdamwUpdate& u) {
  AdamwArgs a{at.master,
              u.grad.data,
              at.m,
              at.v,
              u.format,
              u.begin,
              u.begin + u.count,
              AdamwTerms<float>(u.step),
              u.step.seed,
              u.step.stream,
              nullptr,
              1,
              0,
              nullptr,
              u.requantize.rule,
              u.step.from == UpdateFrom::quantised,
              aligned16(at.master) && aligned16(u.grad.data) && aligned16(at.m.codes) &&
                  aligned16(at.v.codes),
              u.step.rounding,
              u.master.dtype,
              u.grad.dtype};
  if (const LinearWeight* w = u.requantize.weight) {
    a.packed = w->packed.as<uint8_t>();
    a.in = w->in, a.row_offset = u.requantize.row_offset;
    a.row_scale = w->row_scale ? ptr<const float>(w->row_scale) : nullptr;
  }
  return a;
}
// The last counters of the context: two for updates beside the main stream, two for those on it.
enum class Beside { no, yes };
void run_all(const Context& c, Beside beside, std::vector<AdamwArgs> all) {
  adamw_fast(c, c.counters() + Context::kOpCounters + (beside == Beside::yes ? 0 : 2), all);
  adamw_fp32(c, all);
  for (const AdamwArgs& a : all) adamw_generic(c, a);
}
}  // namespace

void adamw_steps(const Context& c, std::span<const AdamwUpdate> all) {
  std::vector<AdamwArgs> args;
  for (const AdamwUpdate& u : all) {
    const int64_t n = u.master.numel();
    args.push_back(args_of(
        {u.master.data, MomentView(u.format, u.m.data, n), MomentView(u.format, u.v.data, n)}, u));
  }
  run_all(c, Beside::no, std::move(args));
}

void adamw_at(const Context& c, const AdamwPlaces& at, const AdamwUpdate& u) {
  run_all(c, Beside::yes, {args_of(at, u)});
}

}  // namespace nibble::cuda
