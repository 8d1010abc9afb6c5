// SPDX-License-Identifier: MIT
// Sampling of the next token from logits [rows, V] (backend/sampling.h): repetition penalty,
// temperature, top-k, top-p, min-p, without sorting. A histogram over distances to the largest
// logit locates the bins in which the top-k and top-p cuts lie; only the tokens of those bins are
// examined one by one (radix search, bit by bit), and a threshold comes out. Weights are integers,
// so sums do not depend on the order in which blocks add (deterministic).
//
// A row is divided over up to 128 blocks of 256 threads; six small launches (two for greedy).
#include <algorithm>

#include "backends/cuda/device_functions/dependent_launch.cuh"
#include "backends/cuda/device_functions/scan.cuh"
#include "backends/cuda/device_functions/types.cuh"
#include "backends/cuda/kernels/kernels.h"
#include "backends/cuda/launch.h"

namespace nibble::cuda {
namespace {

constexpr int kThreads = 256, kWide = 1024;
constexpr int kMaxParts = 128;        // blocks that share a row
constexpr int64_t kPartTokens = 512;  // at least
static_assert(kMaxParts <= kThreads);

// A token in a bin that contains a cut.
struct Entry {
  uint64_t weight;
  uint32_t key;
  int32_t bin;
};

// Per-row state between the launches of one op.
struct RowState {
  uint64_t best[kMaxParts];  // per part: key of the largest logit, then the complement of its id
  uint64_t kept[kMaxParts];  // per part: weight of what is kept
  uint64_t weight[kSampleBins];
  uint32_t count[kSampleBins];
  uint32_t entries;
  uint32_t threshold;  // the smallest key that top-k and top-p keep
};

struct Args {
  int32_t* out;
  const float* logits;
  int64_t stride, width;
  const SampleRow* rows;
  const int32_t* context;  // null: no penalties
  RowState* states;
  Entry* entries;  // [rows, width]
  uint32_t* seen;  // [rows, words]: a bit per token of the context
  int64_t words;
  int parts;
};

// A row as every kernel sees it.
struct Row {
  SampleRow options;
  const float* logits;
  const uint32_t* seen;
  float penalty;

  __device__ Row(const Args& a, int64_t n)
      : options(a.rows[n]),
        logits(a.logits + n * a.stride),
        seen(a.context && options.repetition_penalty != 1 ? a.seen + n * a.words : nullptr),
        penalty(float(options.repetition_penalty)) {}
  __device__ float logit(int64_t i) const {
    const float v = logits[i];
    return seen && (seen[i / 32] >> (i % 32) & 1) ? penalised(v, penalty) : v;
  }
  __device__ bool cut(int64_t width) const {
    return has_top_k(options, width) || has_top_p(options);
  }
};

struct Range {
  int64_t begin, end;
};
__device__ Range part_of(int64_t width, int parts, int part) {
  const int64_t per = (width + parts - 1) / parts, begin = per * part;
  return {begin < width ? begin : width, begin + per < width ? begin + per : width};
}

// The largest logit's key and id, the same in every thread.
template <int Threads>
__device__ uint64_t largest_of(const RowState& s, int parts) {
  return block_max<Threads>(int(threadIdx.x) < parts ? s.best[threadIdx.x] : 0);
}
__device__ uint32_t key_of(uint64_t best) { return uint32_t(best >> 32); }
__device__ int32_t id_of(uint64_t best) { return int32_t(~uint32_t(best)); }
// True where weights decide.
__device__ bool drawn(const Row& row, uint64_t best) {
  return row.options.temperature > 0 && sample_finite(key_of(best));
}

// Bits of the tokens in the context.
__global__ void seen_kernel(Args a) {
  pdl_enter();
  const int64_t n = blockIdx.x;
  const SampleRow& o = a.rows[n];
  if (o.repetition_penalty == 1) return;
  uint32_t* seen = a.seen + n * a.words;
  for (int64_t i = threadIdx.x; i < a.words; i += blockDim.x) seen[i] = 0;
  __syncthreads();
  for (int64_t i = threadIdx.x; i < o.context_length; i += blockDim.x) {
    const int64_t id = a.context[o.context_begin + i];
    if (id >= 0 && id < a.width) atomicOr(seen + id / 32, 1u << (id % 32));
  }
}

// The largest logit of each part; the histogram is emptied on the way.
__global__ void largest_kernel(Args a) {
  pdl_enter();
  const int64_t n = blockIdx.y;
  const Row row(a, n);
  RowState& s = a.states[n];
  uint64_t best = 0;
  const Range r = part_of(a.width, a.parts, int(blockIdx.x));
  for (int64_t i = r.begin + threadIdx.x; i < r.end; i += kThreads) {
    const uint64_t v = uint64_t(sample_key(row.logit(i))) << 32 | uint32_t(~uint32_t(i));
    best = v > best ? v : best;
  }
  best = block_max<kThreads>(best);
  if (threadIdx.x == 0) s.best[blockIdx.x] = best;
  for (int i = int(blockIdx.x) * kThreads + int(threadIdx.x); i < kSampleBins;
       i += a.parts * kThreads) {
    s.weight[i] = 0, s.count[i] = 0;
  }
  if (blockIdx.x == 0 && threadIdx.x == 0) s.entries = 0;
}

// One block a row: the best of all parts.
__global__ void greedy_kernel(Args a) {
  pdl_enter();
  const uint64_t best = largest_of<kThreads>(a.states[blockIdx.x], a.parts);
  if (threadIdx.x == 0) a.out[blockIdx.x] = sample_finite(key_of(best)) ? id_of(best) : -1;
}

__global__ void histogram_kernel(Args a) {
  pdl_enter();
  const int64_t n = blockIdx.y;
  const Row row(a, n);
  RowState& s = a.states[n];
  const uint64_t best = largest_of<kThreads>(s, a.parts);
  if (!drawn(row, best) || !row.cut(a.width)) return;
  __shared__ unsigned long long weight[kSampleBins];
  __shared__ unsigned int count[kSampleBins];
  for (int i = threadIdx.x; i < kSampleBins; i += kThreads) weight[i] = 0, count[i] = 0;
  __syncthreads();
  const SampleScale scale(sample_logit(key_of(best)), row.options.temperature);
  const Range r = part_of(a.width, a.parts, int(blockIdx.x));
  for (int64_t i = r.begin + threadIdx.x; i < r.end; i += kThreads) {
    const float l = row.logit(i);
    if (sample_key(l) == 0) continue;
    const double x = scale.exponent(l);
    const int bin = sample_bin(x);
    atomicAdd(count + bin, 1u);
    const uint64_t w = sample_weight(x);
    if (w > 0) atomicAdd(weight + bin, (unsigned long long)w);
  }
  __syncthreads();
  for (int i = threadIdx.x; i < kSampleBins; i += kThreads) {
    if (count[i] == 0) continue;
    atomicAdd(s.count + i, count[i]);
    if (weight[i] > 0) atomicAdd(reinterpret_cast<unsigned long long*>(s.weight) + i, weight[i]);
  }
}

// Bins in which a cut lies, as far as the histogram tells.
struct Cuts {
  int k_bin = -1;              // top-k ends inside it; -1: no cut that matters
  uint64_t k_count = 0;        // tokens of the bins before it
  uint64_t k_weight = 0;       // and their weight
  uint64_t total = 0;          // weight of all
  int p_low = 0, p_high = -1;  // top-p ends in one of these; none: no cut
  uint64_t p_weight = 0;       // of the bins before p_low
  __device__ bool inside(int bin) const { return bin == k_bin || in_p(bin); }
  __device__ bool in_p(int bin) const { return p_low <= bin && bin <= p_high; }
};

// The same in every thread of the block.
template <int Threads>
__device__ Cuts find_cuts(const RowState& s, const SampleRow& o, int64_t width) {
  constexpr int kPer = kSampleBins / Threads;
  __shared__ Cuts shared;
  uint64_t count[kPer], weight[kPer], counts = 0, weights = 0;
  for (int i = 0; i < kPer; ++i) {
    count[i] = s.count[threadIdx.x * kPer + i], weight[i] = s.weight[threadIdx.x * kPer + i];
    counts += count[i], weights += weight[i];
  }
  uint64_t all_count, all_weight;
  const uint64_t count_before = block_scan<Threads>(counts, all_count) - counts;
  const uint64_t weight_before = block_scan<Threads>(weights, all_weight) - weights;
  if (threadIdx.x == 0) {
    shared = Cuts();
    shared.total = all_weight;
  }
  __syncthreads();
  if (has_top_k(o, width)) {
    uint64_t c = count_before, w = weight_before;
    for (int i = 0; i < kPer; ++i) {
      // A bin without weight holds nothing that could be drawn, nor do those after it.
      if (c < uint64_t(o.top_k) && uint64_t(o.top_k) <= c + count[i] && weight[i] > 0) {
        shared.k_bin = int(threadIdx.x) * kPer + i;
        shared.k_count = c;
        shared.k_weight = w;
        shared.total = w + weight[i];
      }
      c += count[i], w += weight[i];
    }
  }
  __syncthreads();
  if (has_top_p(o)) {
    // What top-k keeps of its own bin is not known yet: between nothing and all of it.
    const uint64_t low =
        nucleus_weight(o.top_p, shared.k_bin >= 0 ? shared.k_weight : shared.total);
    const uint64_t high = nucleus_weight(o.top_p, shared.total);
    uint64_t w = weight_before;
    for (int i = 0; i < kPer; ++i) {
      const int bin = int(threadIdx.x) * kPer + i;
      if (w < low && low <= w + weight[i]) shared.p_low = bin, shared.p_weight = w;
      if (w < high && high <= w + weight[i]) shared.p_high = bin;
      w += weight[i];
    }
  }
  __syncthreads();
  return shared;
}

// Lists the tokens of the bins with cuts.
__global__ void gather_kernel(Args a) {
  pdl_enter();
  const int64_t n = blockIdx.y;
  const Row row(a, n);
  RowState& s = a.states[n];
  const uint64_t best = largest_of<kThreads>(s, a.parts);
  if (!drawn(row, best) || !row.cut(a.width)) return;
  const Cuts cuts = find_cuts<kThreads>(s, row.options, a.width);
  const SampleScale scale(sample_logit(key_of(best)), row.options.temperature);
  const Range r = part_of(a.width, a.parts, int(blockIdx.x));
  for (int64_t i = r.begin + threadIdx.x; i < r.end; i += kThreads) {
    const float l = row.logit(i);
    const uint32_t key = sample_key(l);
    if (key == 0) continue;
    const double x = scale.exponent(l);
    const int bin = sample_bin(x);
    if (!cuts.inside(bin)) continue;
    a.entries[n * a.width + atomicAdd(&s.entries, 1u)] = {sample_weight(x), key, bin};
  }
}

// Radix search: the largest v for which the entries with keys >= v have `wanted` of `measure`
// together. Entries without measure are skipped; together they have what is wanted.
template <class Measure>
__device__ uint32_t threshold_for(const Entry* entries, uint32_t count, uint64_t wanted,
                                  const Measure& measure) {
  uint32_t largest = 0, complement = 0;  // of the keys; of the smallest
  for (uint32_t i = threadIdx.x; i < count; i += kWide) {
    if (measure(entries[i]) == 0) continue;
    largest = max(largest, entries[i].key);
    complement = max(complement, ~entries[i].key);
  }
  largest = uint32_t(block_max<kWide>(largest));
  const uint32_t differ = largest ^ ~uint32_t(block_max<kWide>(complement));
  if (differ == 0) return largest;
  // Bits above the first that differs need no search.
  const int top = 31 - __clz(int(differ));
  uint32_t v = top == 31 ? 0 : largest & ~((2u << top) - 1);
  for (int bit = top; bit >= 0; --bit) {
    const uint32_t candidate = v | 1u << bit;
    uint64_t sum = 0;
    for (uint32_t i = threadIdx.x; i < count; i += kWide) {
      if (entries[i].key >= candidate) sum += measure(entries[i]);
    }
    if (block_sum<kWide>(sum) >= wanted) v = candidate;
  }
  return v;
}

// One block a row.
__global__ void __launch_bounds__(kWide) threshold_kernel(Args a) {
  pdl_enter();
  const int64_t n = blockIdx.x;
  const Row row(a, n);
  RowState& s = a.states[n];
  const uint64_t best = largest_of<kWide>(s, a.parts);
  if (!drawn(row, best)) return;
  uint32_t least = 1;  // all but NaN
  if (row.cut(a.width)) {
    const Cuts cuts = find_cuts<kWide>(s, row.options, a.width);
    const Entry* entries = a.entries + n * a.width;
    const uint32_t count = s.entries;
    uint64_t total = cuts.total;
    if (cuts.k_bin >= 0) {
      const auto in_bin = [&](const Entry& e) { return uint64_t(e.bin == cuts.k_bin); };
      least = threshold_for(entries, count, uint64_t(row.options.top_k) - cuts.k_count, in_bin);
      uint64_t kept = 0;
      for (uint32_t i = threadIdx.x; i < count; i += kWide) {
        if (entries[i].bin == cuts.k_bin && entries[i].key >= least) kept += entries[i].weight;
      }
      total = cuts.k_weight + block_sum<kWide>(kept);
    }
    if (cuts.p_high >= 0) {
      const uint64_t wanted = nucleus_weight(row.options.top_p, total) - cuts.p_weight;
      const auto weight = [&](const Entry& e) { return cuts.in_p(e.bin) ? e.weight : 0; };
      least = max(least, threshold_for(entries, count, wanted, weight));
    }
  }
  if (threadIdx.x == 0) s.threshold = least;
}

// The weight of token i, 0 where it is cut off.
__device__ uint64_t kept_weight(const Row& row, const SampleScale& scale, uint32_t least,
                                uint64_t light, int64_t i) {
  const float l = row.logit(i);
  if (sample_key(l) < least) return 0;
  const uint64_t w = sample_weight(scale.exponent(l));
  return w >= light ? w : 0;
}

__global__ void kept_kernel(Args a) {
  pdl_enter();
  const int64_t n = blockIdx.y;
  const Row row(a, n);
  RowState& s = a.states[n];
  const uint64_t best = largest_of<kThreads>(s, a.parts);
  if (!drawn(row, best)) return;
  const SampleScale scale(sample_logit(key_of(best)), row.options.temperature);
  const uint64_t light = least_weight(row.options.min_p);
  const Range r = part_of(a.width, a.parts, int(blockIdx.x));
  uint64_t sum = 0;
  for (int64_t i = r.begin + threadIdx.x; i < r.end; i += kThreads) {
    sum += kept_weight(row, scale, s.threshold, light, i);
  }
  sum = block_sum<kThreads>(sum);
  if (threadIdx.x == 0) s.kept[blockIdx.x] = sum;
}

// One block a row: finds the part the drawn point lies in, then the token.
__global__ void __launch_bounds__(kWide) pick_kernel(Args a) {
  pdl_enter();
  const int64_t n = blockIdx.x;
  const Row row(a, n);
  const RowState& s = a.states[n];
  const uint64_t best = largest_of<kWide>(s, a.parts);
  if (!drawn(row, best)) {
    if (threadIdx.x == 0) a.out[n] = sample_finite(key_of(best)) ? id_of(best) : -1;
    return;
  }
  __shared__ int part;
  __shared__ uint64_t point;
  const uint64_t own = int(threadIdx.x) < a.parts ? s.kept[threadIdx.x] : 0;
  uint64_t mass;
  const uint64_t through = block_scan<kWide>(own, mass);
  const uint64_t drawn_point = draw_point(row.options.seed, row.options.draw, mass);
  if (through - own <= drawn_point && drawn_point < through) {
    part = int(threadIdx.x), point = drawn_point - (through - own);
  }
  __syncthreads();
  const SampleScale scale(sample_logit(key_of(best)), row.options.temperature);
  const uint64_t light = least_weight(row.options.min_p);
  const Range r = part_of(a.width, a.parts, part);
  const int64_t per = (r.end - r.begin + kWide - 1) / kWide;
  const int64_t begin = min(r.begin + per * threadIdx.x, r.end), end = min(begin + per, r.end);
  uint64_t sum = 0;
  for (int64_t i = begin; i < end; ++i) sum += kept_weight(row, scale, s.threshold, light, i);
  const uint64_t before = block_scan<kWide>(sum, mass) - sum;
  if (before <= point && point < before + sum) {
    uint64_t left = point - before;
    for (int64_t i = begin; i < end; ++i) {
      const uint64_t w = kept_weight(row, scale, s.threshold, light, i);
      if (left < w) {
        a.out[n] = int32_t(i);
        break;
      }
      left -= w;
    }
  }
}

void sample_rows(const Context& c, const Args& a, unsigned rows, Choice choice) {
  const Grid shared{dim3(unsigned(a.parts), rows), dim3(kThreads)}, wide{dim3(rows), dim3(kWide)};
  if (a.context && choice == Choice::any) launch(c, wide, seen_kernel, a);
  launch(c, shared, largest_kernel, a);
  if (choice == Choice::greedy) {
    launch(c, {dim3(rows), dim3(kThreads)}, greedy_kernel, a);
    return;
  }
  launch(c, shared, histogram_kernel, a);
  launch(c, shared, gather_kernel, a);
  launch(c, wide, threshold_kernel, a);
  launch(c, shared, kept_kernel, a);
  launch(c, wide, pick_kernel, a);
}

}  // namespace

void sample(const Context& c, Tensor out, Tensor logits, Tensor rows, Tensor context,
            Choice choice) {
  if (logits.dtype != DType::f32) {
    throw_internal("the CUDA backend chooses tokens from f32 logits, not {}", logits.describe());
  }
  Args a;
  a.stride = logits.row_stride;
  a.width = logits.dim(1);
  a.words = (a.width + 31) / 32;
  a.parts = int(std::clamp<int64_t>(a.width / kPartTokens, 1, kMaxParts));
  a.context = context && choice == Choice::any ? ptr<const int32_t>(context) : nullptr;
  const size_t per_row =
      sizeof(RowState) + size_t(a.width) * sizeof(Entry) + size_t(a.words) * sizeof(uint32_t);
  const int64_t at_once = std::min<int64_t>(int64_t(Context::kScratchBytes / per_row), 32768);
  for (int64_t n = 0; n < logits.dim(0); n += at_once) {
    const int64_t count = std::min(at_once, logits.dim(0) - n);
    a.out = ptr<int32_t>(out) + n;
    a.logits = ptr<const float>(logits) + n * a.stride;
    a.rows = ptr<const SampleRow>(rows) + n;
    a.states = reinterpret_cast<RowState*>(c.scratch());
    a.entries = reinterpret_cast<Entry*>(a.states + count);
    a.seen = reinterpret_cast<uint32_t*>(a.entries + count * a.width);
    sample_rows(c, a, unsigned(count), choice);
  }
}

}  // namespace nibble::cuda
