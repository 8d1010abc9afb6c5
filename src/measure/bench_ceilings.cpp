// SPDX-License-Identifier: MIT
#include "measure/bench_ceilings.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "core/half.h"
#include "core/rng.h"
#include "core/thread_pool.h"
#include "measure/bench_peak.h"

namespace nibble {
namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t kRow = 1 << 20;
constexpr uint64_t kSpare = uint64_t(64) << 20;  // left to others

// Seconds of one call of `work`, several of which run between two waits; best of `passes` after
// one that is not counted.
template <class F>
double best_seconds(Backend& be, int passes, F&& work) {
  constexpr int kCalls = 8;
  double best = 0;
  for (int pass = 0; pass <= passes; ++pass) {
    be.sync();
    const auto start = Clock::now();
    for (int i = 0; i < kCalls; ++i) work();
    be.sync();
    const double s = std::chrono::duration<double>(Clock::now() - start).count() / kCalls;
    if (pass == 1 || (pass > 1 && s < best)) best = s;
  }
  return best;
}

}  // namespace

Ceilings measure_ceilings(Backend& be, int threads, size_t buffer) {
  Ceilings c;
  if (be.traits().device == DeviceKind::cuda) {
    const int64_t n = matrix_size_that_fits(be, 8192);
    c = {copy_bandwidth(be, copy_size_that_fits(be, buffer), 7), matrix_peak(be, n, 7), "copy",
         "GEMM", ""};
    c.description =
        fmt::format("copies {:.1f} GB/s (reads and writes), bf16 product of {}^3 {:.1f} TFLOP/s",
                    c.bytes / 1e9, n, c.flops / 1e12);
    return c;
  }
  ThreadPool pool(threads);
  c = {read_bandwidth(pool, buffer, 7), fma_peak(pool, 7), "read", "FMA", ""};
  c.description = fmt::format("reads {:.1f} GB/s, fp32 multiply-add {:.1f} GFLOP/s", c.bytes / 1e9,
                              c.flops / 1e9);
  return c;
}

double copy_bandwidth(Backend& be, size_t n_bytes, int passes) {
  const int64_t rows = std::max<int64_t>(1, int64_t(n_bytes / kRow));
  const auto make = [&](Arena& a) {
    const Tensor from = a.take(DType::u8, {rows, int64_t(kRow)});
    return std::pair(from, a.take(DType::u8, {rows, int64_t(kRow)}));
  };
  Arena measure("copies");
  make(measure);
  Arena arena("copies", be.allocate(measure.peak(), "the measured copy"));
  const auto [from, to] = make(arena);
  // Named anew: clang before 16 does not capture structured bindings.
  const double s = best_seconds(be, passes, [&, to = to, from = from] { be.copy(to, from); });
  return 2 * double(rows) * double(kRow) / s;
}

double matrix_peak(Backend& be, int64_t n, int passes) {
  struct Memory {
    Tensor x, out;
    LinearWeight w;
  };
  const auto make = [&](Arena& a) {
    Memory m;
    m.x = a.take(DType::bf16, {n, n});
    m.out = a.take(DType::bf16, {n, n});
    m.w.out = m.w.in = n;
    m.w.dense = a.take(DType::bf16, {n, n});
    return m;
  };
  Arena measure("matrices");
  make(measure);
  Arena arena("matrices", be.allocate(measure.peak(), "the measured product"));
  const Memory m = make(arena);
  std::vector<bf16_t> values(size_t(n * n));
  for (size_t i = 0; i < values.size(); i += 4) {
    const auto r = philox(1, 2, i);
    for (size_t j = 0; j < std::min<size_t>(4, values.size() - i); ++j) {
      values[i + j] = to_bf16(float(int32_t(r[j])) * 0x1p-31f);
    }
  }
  be.upload(m.x, values.data());
  be.upload(m.w.dense, values.data());
  const double s = best_seconds(be, passes, [&] { be.linear(m.out, m.x, m.w, Activations::none); });
  return 2 * double(n) * double(n) * double(n) / s;
}

size_t copy_size_that_fits(const Backend& be, size_t most) {
  const uint64_t available = be.available_memory();
  const uint64_t free = available > kSpare ? available - kSpare : 0;
  return std::max(kRow, size_t(std::min<uint64_t>(most, free / 2)));
}

int64_t matrix_size_that_fits(const Backend& be, int64_t most) {
  const uint64_t available = be.available_memory();
  int64_t n = most;
  while (n > 256 && uint64_t(3 * 2 * n * n) + kSpare > available) n /= 2;
  return n;
}

}  // namespace nibble
