// SPDX-License-Identifier: MIT
// Packed NVFP4 weights times one token (device/token_units.cuh), one product a launch.
//
// A block owns 16 rows (with swiglu 16 of the gate and 16 of the up half); its warps take the parts
// of their columns in turn.
#include <algorithm>

#include "backends/cuda/device/dependency.cuh"
#include "backends/cuda/device/token_units.cuh"
#include "backends/cuda/kernels/linear.h"
#include "backends/cuda/launch.h"

namespace nibble::cuda {
namespace {

constexpr int kMaxWarps = 16;

struct Job {
  const uint8_t* packed;
  const void* x;
  const float* row_scale;
  AnyFloats out;     // [rows], or gate_up [2 F]
  AnyFloats swiglu;  // [F] or null
  int rows, in, units, parts;
  bool aligned;  // x may be read 16 bytes at a time
};

// Task `task` of a block: with swiglu the parts of the gate strip, then those of the up strip.
template <bool kSwiglu>
__device__ __forceinline__ UnitRange task_of(const Job& j, int task) {
  UnitRange r;
  if (task >= (kSwiglu ? 2 : 1) * j.parts) return r;
  const int half = kSwiglu && task >= j.parts, part = task - half * j.parts;
  const int strip = int(blockIdx.x) + half * (j.rows / 2 / int(kUnitRows));
  r.first = part_begin(j.units, j.parts, part);
  r.count = part_begin(j.units, j.parts, part + 1) - r.first;
  r.p = j.packed + (int64_t(strip) * j.units + r.first) * kUnitBytes;
  return r;
}

// One row of a strip; scale is its row's and, with swiglu, the up row's.
template <class T, bool kSwiglu>
__device__ __forceinline__ void finish(const Job& j, int row, int t, const float* sums,
                                       const float (&scale)[2]) {
  const auto value = [&](int half) {
    const float v = add_parts<T>(sums + half * j.parts * int(kUnitRows), j.parts, t);
    return j.row_scale ? v * scale[half] : v;
  };
  if constexpr (kSwiglu) {
    const int width = j.rows / 2;
    const T gate = from_f32<T>(value(0)), up = from_f32<T>(value(1));
    static_cast<T*>(j.out.data)[row] = gate;
    static_cast<T*>(j.out.data)[row + width] = up;
    static_cast<T*>(j.swiglu.data)[row] = swiglu_of(gate, up);
  } else {
    if (row < j.rows) j.out.set(row, value(0));
  }
}

template <class T, bool kSwiglu>
__global__ void __launch_bounds__(32 * kMaxWarps) gemv_parts_kernel(Job j) {
  extern __shared__ uint4 shared[];  // the token, then the sums
  __shared__ uint4 zeros[2];
  const int t = int(threadIdx.x), lane = t % 32, warp = t / 32, warps = int(blockDim.x) / 32;
  // Weights may be read ahead of the kernel before; the token may not.
  Unit units[kUnitsInFlight];
  UnitRange part = task_of<kSwiglu>(j, warp);
  request(units, part, lane);
  const int row = int(blockIdx.x) * int(kUnitRows) + t;  // of the thread that will finish it
  float scale[2] = {1, 1};
  if (j.row_scale && t < int(kUnitRows) && row < j.rows) {
    scale[0] = j.row_scale[row];
    if (kSwiglu) scale[1] = j.row_scale[row + j.rows / 2];
  }
  enter();
  stage_token(reinterpret_cast<T*>(shared), static_cast<const T*>(j.x), j.in, j.units, j.aligned,
              int(blockDim.x));
  if (t < 2) zeros[t] = make_uint4(0, 0, 0, 0);
  __syncthreads();

  float* const sums = reinterpret_cast<float*>(shared + 16 * j.units);
  const TokenLane x(shared, zeros, lane);
  for (int task = warp; part.count > 0; task += warps) {
    const UnitRange next = task_of<kSwiglu>(j, task + warps);
    sum_part<T>(units, part, next, x, lane, sums + task * int(kUnitRows));
    part = next;
  }
  __syncthreads();
  if (t < int(kUnitRows)) finish<T, kSwiglu>(j, row, t, sums, scale);
}

size_t shared_bytes(int64_t units, int64_t tasks) {
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
  j.rows = int(w.out), j.in = int(w.in), j.units = int(units), j.parts = parts_of(int(units));
  j.aligned = reinterpret_cast<uintptr_t>(x.data) % 16 == 0;  // in % 16 == 0 is the format's rule
  const int tasks = (kSwiglu ? 2 : 1) * j.parts, warps = std::min(tasks, kMaxWarps);
  const auto go = [&](auto kernel) {
    allow_shared(c, kernel);
    launch(c, {dim3(unsigned(strips)), dim3(unsigned(32 * warps)), shared_bytes(units, tasks)},
           kernel, j);
  };
  if (x.dtype == DType::bf16) {
    go(gemv_parts_kernel<bf16, kSwiglu>);
  } else if constexpr (!kSwiglu) {  // f16 is rare: not worth compiling the fused kernel for
    go(gemv_parts_kernel<f16, false>);
  }
}

}  // namespace

void gemv_parts(const Context& c, Tensor out, Tensor x, const LinearWeight& w) {
  run<false>(c, out, Tensor{}, x, w);
}

void gemv_parts_swiglu(const Context& c, Tensor act, Tensor gate_up, Tensor x,
                       const LinearWeight& w) {
  run<true>(c, gate_up, act, x, w);
}

}  // namespace nibble::cuda
