// SPDX-License-Identifier: MIT
#include "measure/bench_peak.h"

#include "backends/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "measure/bench_peak.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace nibble::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Sums `n` 64-bit words, a multiple of 64: loads are all it costs.
uint64_t sum_words(const uint64_t* p, size_t n) {
  const hn::ScalableTag<uint64_t> d;
  const size_t lanes = hn::Lanes(d);
  auto a = hn::Zero(d), b = a, c = a, e = a;
  for (size_t i = 0; i < n; i += 4 * lanes) {
    a = hn::Add(a, hn::LoadU(d, p + i));
    b = hn::Add(b, hn::LoadU(d, p + i + lanes));
    c = hn::Add(c, hn::LoadU(d, p + i + 2 * lanes));
    e = hn::Add(e, hn::LoadU(d, p + i + 3 * lanes));
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(a, b), hn::Add(c, e))));
}

// `rounds` rounds of twelve independent multiply-adds: enough to hide their latency, few enough for
// sixteen registers. Adds the operations done to *operations.
float multiply_add(int64_t rounds, float x, double* operations) {
  const hn::ScalableTag<float> d;
  const auto m = hn::Set(d, x), k = hn::Set(d, 1e-6f);
  // Each begins elsewhere: the compiler makes one of sums that are equal.
  const auto begin = [&](float v) { return hn::Set(d, v); };
  auto a0 = begin(1), a1 = begin(2), a2 = begin(3), a3 = begin(4), a4 = begin(5), a5 = begin(6),
       a6 = begin(7), a7 = begin(8), a8 = begin(9), a9 = begin(10), a10 = begin(11),
       a11 = begin(12);
  for (int64_t i = 0; i < rounds; ++i) {
    a0 = hn::MulAdd(a0, m, k);
    a1 = hn::MulAdd(a1, m, k);
    a2 = hn::MulAdd(a2, m, k);
    a3 = hn::MulAdd(a3, m, k);
    a4 = hn::MulAdd(a4, m, k);
    a5 = hn::MulAdd(a5, m, k);
    a6 = hn::MulAdd(a6, m, k);
    a7 = hn::MulAdd(a7, m, k);
    a8 = hn::MulAdd(a8, m, k);
    a9 = hn::MulAdd(a9, m, k);
    a10 = hn::MulAdd(a10, m, k);
    a11 = hn::MulAdd(a11, m, k);
  }
  *operations += 2.0 * 12 * double(rounds) * double(hn::Lanes(d));
  const auto s =
      hn::Add(hn::Add(hn::Add(a0, a1), hn::Add(a2, a3)), hn::Add(hn::Add(a4, a5), hn::Add(a6, a7)));
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(s, hn::Add(hn::Add(a8, a9), hn::Add(a10, a11)))));
}

}  // namespace nibble::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>
#include <atomic>
#include <chrono>
#include <vector>

#include "core/thread_pool.h"

namespace nibble {
namespace {

HWY_EXPORT(sum_words);
HWY_EXPORT(multiply_add);

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point t) {
  return std::chrono::duration<double>(Clock::now() - t).count();
}

}  // namespace

double read_bandwidth(ThreadPool& pool, size_t n_bytes, int passes) {
  constexpr size_t kPiece = 4 << 20;
  const int64_t pieces = std::max<int64_t>(1, int64_t(n_bytes / kPiece));
  constexpr size_t kWords = kPiece / 8;
  std::vector<uint64_t> buffer(size_t(pieces) * kWords);
  std::atomic<uint64_t> sink{0};
  double best = 0;
  // The first pass is not counted: it touches pages for the first time from these threads.
  for (int pass = 0; pass <= passes; ++pass) {
    const auto start = Clock::now();
    pool.parallel_for(pieces, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        sink += HWY_DYNAMIC_DISPATCH(sum_words)(buffer.data() + size_t(i) * kWords, kWords);
      }
    });
    if (pass > 0) best = std::max(best, double(pieces) * double(kPiece) / seconds_since(start));
  }
  return best;
}

double fma_peak(ThreadPool& pool, int passes) {
  constexpr int64_t kRounds = 20000;
  const int64_t pieces = 64 * pool.size();
  std::vector<double> operations(size_t(pool.size()) * 8);  // a cache line per thread
  std::atomic<uint32_t> sink{0};
  double best = 0;
  for (int pass = 0; pass <= passes; ++pass) {
    std::fill(operations.begin(), operations.end(), 0.0);
    const auto start = Clock::now();
    pool.parallel_for(pieces, 1, [&](int64_t begin, int64_t end, int thread) {
      for (int64_t i = begin; i < end; ++i) {
        const float r =
            HWY_DYNAMIC_DISPATCH(multiply_add)(kRounds, 0.999f, &operations[size_t(thread) * 8]);
        sink += uint32_t(r > 0);
      }
    });
    const double elapsed = seconds_since(start);
    double total = 0;
    for (double o : operations) total += o;
    if (pass > 0) best = std::max(best, total / elapsed);
  }
  return best;
}

}  // namespace nibble
#endif
