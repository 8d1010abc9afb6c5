// SPDX-License-Identifier: MIT
// GEMV, y [rows] = W x with packed NVFP4 weights and one token, bf16 or f16, one product a launch
// (device_functions/gemv_units.cuh); with SwiGLU fused for gate_up. Chosen by linear() for one
// token.
//
// Grid: one block a strip of 16 rows (with SwiGLU 16 of gate and 16 of up); its warps split K,
// partial sums are added in order in shared memory. Weights go straight to registers, five units in
// flight a warp, the first of them before pdl_wait. Bound by the latency of a launch's start and
// end: the products of a Qwen3-4B layer take 27 us on an H200 for bytes that need 14 at the rate of
// a copy (docs/adr/0012).
//
// Two kernels because sums have an order: on compute capability 9.0, where a recorded token may be
// one launch (decode/token_kernel.cuh), a product alone must have the bits of that launch
// (gemv_split_k_kernel); everywhere else gemv_kernel splits K over as many warps as are best. On an
// H200 a graph of launches decodes 680 tokens a second with the latter, 633 with the former.
#include <algorithm>

#include "backends/cuda/device_functions/dependent_launch.cuh"
#include "backends/cuda/device_functions/gemv_units.cuh"
#include "backends/cuda/kernels/linear/linear.h"
#include "backends/cuda/launch.h"

namespace nibble::cuda {
namespace {

// Split-K parts of a strip; warps of a block; warps of two resident blocks.
constexpr int kMaxParts = 64, kMaxWarps = 10, kResidentWarps = 2 * kMaxWarps;

struct Job {
  const uint8_t* packed;
  const void* x;
  const float* row_scale;
  AnyFloats out;     // [rows], or gate_up [2 F]
  AnyFloats swiglu;  // [F] or null
  int rows, in, units;
  bool aligned;  // x may be read 16 bytes at a time
};

// The split-K table travels with the arguments: divisions on the device would delay the first
// weight loads.
struct SplitKJob : Job {
  int tasks;                      // parts of the block's one or two strips
  uint16_t begin[kMaxParts + 1];  // of the parts of a strip, in units
};

// Epilogue of one row; value(half) is its sum, scale that of its row and, with SwiGLU, of the up
// row.
template <class T, bool kSwiglu, class Value>
__device__ __forceinline__ void epilogue(const Job& j, int row, const float (&scale)[2],
                                         Value&& value) {
  const auto scaled = [&](int half) {
    const float v = value(half);
    return j.row_scale ? v * scale[half] : v;
  };
  if constexpr (kSwiglu) {
    const int width = j.rows / 2;
    const T gate = from_f32<T>(scaled(0)), up = from_f32<T>(scaled(1));
    static_cast<T*>(j.out.data)[row] = gate;
    static_cast<T*>(j.out.data)[row + width] = up;
    static_cast<T*>(j.swiglu.data)[row] = swiglu_of(gate, up);
  } else {
    if (row < j.rows) j.out.set(row, scaled(0));
  }
}

// Prefetches the row scales of the row that this thread will store.
template <bool kSwiglu>
__device__ __forceinline__ void load_scales(const Job& j, int row, int t, float (&scale)[2]) {
  if (j.row_scale && t < int(kUnitRows) && row < j.rows) {
    scale[0] = j.row_scale[row];
    if (kSwiglu) scale[1] = j.row_scale[row + j.rows / 2];
  }
}

template <class T, bool kSwiglu, int kWarps>
__global__ void __launch_bounds__(kWarps*(kSwiglu ? 64 : 32)) gemv_kernel(Job j) {
  constexpr int kHalves = kSwiglu ? 2 : 1;
  extern __shared__ uint4 shared[];
  __shared__ float sums[kHalves * kWarps * kUnitRows];
  __shared__ uint4 zeros[2];
  const int t = int(threadIdx.x), lane = t % 32;
  const int half = t / 32 / kWarps, warp = t / 32 % kWarps, strip = int(blockIdx.x);
  const int first = j.units * warp / kWarps, last = j.units * (warp + 1) / kWarps;
  const int weight_strip = strip + half * (j.rows / 2 / int(kUnitRows));
  const uint8_t* w = j.packed + int64_t(weight_strip) * j.units * kUnitBytes;
  // Prologue: weights may be prefetched before pdl_wait; x may not.
  Unit units[kUnitsInFlight];
#pragma unroll
  for (int i = 0; i < kUnitsInFlight; ++i) {
    if (first + i < last) units[i].load(w + int64_t(first + i) * kUnitBytes, lane);
  }
  const int row = strip * int(kUnitRows) + t;  // that this thread will store
  float scale[2] = {1, 1};
  load_scales<kSwiglu>(j, row, t, scale);
  pdl_enter();
  stage_token(reinterpret_cast<T*>(shared), static_cast<const T*>(j.x), j.in, j.units, j.aligned,
              kHalves * kWarps * 32);
  if (t < 2) zeros[t] = make_uint4(0, 0, 0, 0);
  __syncthreads();

  const TokenLane x(shared, zeros, lane);
  float acc0 = 0, acc1 = 0;
  for (int k = first; k < last; k += kUnitsInFlight) {
#pragma unroll
    for (int i = 0; i < kUnitsInFlight; ++i) {
      if (k + i < last) {
        multiply<T>(units[i], x.unit(k + i), acc0, acc1);
        if (k + i + kUnitsInFlight < last) {
          units[i].load(w + int64_t(k + i + kUnitsInFlight) * kUnitBytes, lane);
        }
      }
    }
  }
  store_strip_sums(acc0, acc1, lane, sums + (half * kWarps + warp) * int(kUnitRows));
  __syncthreads();
  if (t < int(kUnitRows)) {
    epilogue<T, kSwiglu>(j, row, scale, [&](int h) {
      float v = 0;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) v += sums[(h * kWarps + w) * int(kUnitRows) + t];
      return v * (1.0f / (kCodeScale<T> * kTokenScale<T>));
    });
  }
}

// gemv_split_k_kernel: the split-K parts, hence the order of sums, of decode/token_kernel.cuh;
// warps take parts in turn. Task `task` of a block: with SwiGLU the parts of the gate strip, then
// those of the up strip.
template <bool kSwiglu>
__device__ __forceinline__ UnitRange task_of(const SplitKJob& j, int task) {
  UnitRange r;
  if (task >= j.tasks) return r;
  const int half = kSwiglu && 2 * task >= j.tasks, part = task - (half ? j.tasks / 2 : 0);
  const int strip = int(blockIdx.x) + half * (j.rows / 2 / int(kUnitRows));
  r.first = j.begin[part];
  r.count = j.begin[part + 1] - r.first;
  r.p = j.packed + (int64_t(strip) * j.units + r.first) * kUnitBytes;
  return r;
}

template <class T, bool kSwiglu>
__global__ void __launch_bounds__(32 * kMaxWarps, 2) gemv_split_k_kernel(SplitKJob j) {
  constexpr int kHalves = kSwiglu ? 2 : 1;
  extern __shared__ uint4 shared[];  // x, then the partial sums
  __shared__ uint4 zeros[2];
  const int t = int(threadIdx.x), lane = t % 32, warp = t / 32, warps = int(blockDim.x) / 32;
  // Prologue: weights may be prefetched before pdl_wait; x may not.
  Unit units[kUnitsInFlight];
  UnitRange part = task_of<kSwiglu>(j, warp);
  load_units(units, part, lane);
  const int row = int(blockIdx.x) * int(kUnitRows) + t;  // that this thread will store
  float scale[2] = {1, 1};
  load_scales<kSwiglu>(j, row, t, scale);
  pdl_enter();
  stage_token(reinterpret_cast<T*>(shared), static_cast<const T*>(j.x), j.in, j.units, j.aligned,
              int(blockDim.x));
  if (t < 2) zeros[t] = make_uint4(0, 0, 0, 0);
  __syncthreads();

  float* const sums = reinterpret_cast<float*>(shared + 16 * j.units);
  const TokenLane x(shared, zeros, lane);
  for (int task = warp; task < j.tasks; task += warps) {
    const UnitRange next = task_of<kSwiglu>(j, task + warps);
    accumulate_part<T>(units, part, next, x, lane, sums + task * int(kUnitRows));
    part = next;
  }
  __syncthreads();
  if (t < int(kUnitRows)) {
    const int parts = j.tasks / kHalves;  // of a strip
    epilogue<T, kSwiglu>(j, row, scale, [&](int half) {
      return reduce_parts<T>(sums + half * parts * int(kUnitRows), parts / StripSplitK::kQuarters,
                             t);
    });
  }
}

// As many warps as keep all blocks resident in one wave, where few enough do, with about equal
// work.
template <class T, bool kSwiglu>
void run_split_k(const Context& c, const Job& job, int64_t strips, size_t shared) {
  SplitKJob j = {job, 0, {}};
  const StripSplitK cut(j.units);
  j.tasks = (kSwiglu ? 2 : 1) * cut.part_count();
  for (int part = 0; part <= cut.part_count(); ++part) j.begin[part] = uint16_t(cut.begin(part));
  const int64_t per_sm = (strips + c.sm_count - 1) / c.sm_count;
  const int limit = int(std::clamp<int64_t>(kResidentWarps / per_sm, 4, kMaxWarps));
  const int turns = (j.tasks + limit - 1) / limit, warps = (j.tasks + turns - 1) / turns;
  const auto kernel = gemv_split_k_kernel<T, kSwiglu>;
  allow_shared(c, kernel);
  launch(c, {dim3(unsigned(strips)), dim3(unsigned(32 * warps)), shared}, kernel, j);
}

// Shared memory: x, and behind it the partial sums.
size_t shared_bytes(const Context& c, int64_t units, int halves) {
  const int tasks = c.token_kernel ? halves * StripSplitK(int(units)).part_count() : 0;
  return size_t(units * kUnitCols) * 2 + size_t(tasks * kUnitRows) * sizeof(float);
}

template <bool kSwiglu>
void run(const Context& c, Tensor out, Tensor act, Tensor x, const LinearWeight& w) {
  const int64_t strips = strips_of(kSwiglu ? w.out / 2 : w.out), units = units_across(w.in);
  Job j = {};
  j.packed = w.packed.as<uint8_t>();
  j.x = x.data;
  j.row_scale = w.row_scale ? ptr<const float>(w.row_scale) : nullptr;
  j.out = AnyFloats(out);
  j.swiglu = AnyFloats(act);
  j.rows = int(w.out), j.in = int(w.in), j.units = int(units);
  j.aligned = reinterpret_cast<uintptr_t>(x.data) % 16 == 0;  // in % 16 == 0 is the format's rule
  constexpr int kHalves = kSwiglu ? 2 : 1;
  const size_t shared = shared_bytes(c, units, kHalves);
  const auto go = [&](auto kernel, int warps) {
    allow_shared(c, kernel);
    launch(c, {dim3(unsigned(strips)), dim3(unsigned(32 * warps)), shared}, kernel, j);
  };
  // Few strips get more warps each, so that enough bytes are in flight; where two warps let all
  // blocks of the fused product (five an SM) be resident, it gets two. The bits are those of the
  // plain product: the same warps along K.
  const int64_t per_sm = (strips_of(w.out) + c.sm_count - 1) / c.sm_count;
  const int warps = per_sm <= 2 ? 8 : per_sm > 5 && per_sm <= 10 ? 2 : 4;
  const auto with_warps = [&](auto t) {
    using T = decltype(t);
    if (c.token_kernel) return run_split_k<T, kSwiglu>(c, j, strips, shared);
    switch (warps) {
      case 8: return go(gemv_kernel<T, kSwiglu, 8>, 8 * kHalves);
      case 4: return go(gemv_kernel<T, kSwiglu, 4>, 4 * kHalves);
      default: return go(gemv_kernel<T, kSwiglu, 2>, 2 * kHalves);
    }
  };
  if (x.dtype == DType::bf16) {
    with_warps(bf16{});
  } else if constexpr (!kSwiglu) {  // f16 is rare: not worth compiling the fused kernel for
    with_warps(f16{});
  }
}

}  // namespace

bool gemv_fits(const Context& c, const LinearWeight& w) {
  return StripSplitK(int(units_across(w.in))).part_count() <= kMaxParts &&
         shared_bytes(c, units_across(w.in), 2) + (8 << 10) <= c.shared_per_block &&
         w.out < (int64_t(1) << 28);
}

void gemv(const Context& c, Tensor out, Tensor x, const LinearWeight& w) {
  run<false>(c, out, Tensor{}, x, w);
}

void gemv_swiglu(const Context& c, Tensor act, Tensor gate_up, Tensor x, const LinearWeight& w) {
  run<true>(c, gate_up, act, x, w);
}

}  // namespace nibble::cuda
