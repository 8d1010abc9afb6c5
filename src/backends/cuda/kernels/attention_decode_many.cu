// SPDX-License-Identifier: MIT
// Attention for one or few queries each of many sequences: so many (token, key head) pairs that
// nothing has to be cut. A block takes one pair with all its query heads, so keys and values are
// read once; its four warps take 16 keys in turn, each with a running softmax, and are merged in
// order.
//
// Bound by memory. What decides is that keys are asked for in whole rows: on an H200 the copies of
// 32 x 512 keys alone take 16.8 us so (4.0 TB/s), and 22.7 in the pieces of 64 bytes that
// attention_decode.cu asks for; two stages instead of three take 21.9.
//
// Keys, and then the columns of the values, are the rows of A; the query heads, at most eight, are
// the columns of B. Lane = 4 r + c.
#include <cmath>

#include "backends/cuda/device/dependency.cuh"
#include "backends/cuda/device/reduce.cuh"
#include "backends/cuda/kernels/attention_mma.cuh"
#include "backends/cuda/launch.h"

namespace nibble::cuda {
namespace {

constexpr int64_t kFewQueries = 8;  // a sequence, on average
constexpr int kWarps = 4, kThreads = 32 * kWarps;
constexpr int kKeys = 16;                // a warp takes at a time
constexpr int kStages = 3;               // of such keys on their way; two blocks fit
constexpr int kStep = kKeys * kWarps;    // of the block
constexpr int kGroup = 8;                // query heads a key head, at most
constexpr int D = 128, kChunks = D / 8;  // of a head
constexpr int kTileBytes = kKeys * D * 2, kStageBytes = 2 * kTileBytes;
constexpr int kSumStride = D + 1;  // between heads, so that the lanes' banks differ
constexpr size_t kShared = size_t(kWarps) * kStages * kStageBytes;
static_assert(kShared >= size_t(kWarps) * kGroup * (kSumStride * sizeof(float) + sizeof(float2)));

template <class T>
struct ManyArgs {
  Heads<T> out;
  LogSums lse;
  Heads<const T> q, k, v;
  Sequences sequences;
  int group;
  float scale;  // with log2 e
};

// One warp's running softmax of heads 2 c and 2 c + 1; sums[m]: of those heads, columns 16 m + r
// (0, 1) and 16 m + r + 8 (2, 3). total: of the lane's keys alone.
struct Running {
  float sums[D / 16][4] = {};
  float largest[2] = {-INFINITY, -INFINITY}, total[2] = {0, 0};
};

// Asks for `count` (at most 16) rows of keys or values, each by half a warp; the others become
// zero.
template <class T>
__device__ __forceinline__ void request_rows(uint32_t tile, const T* from, int64_t stride,
                                             int count) {
  const int lane = int(threadIdx.x) % 32, row = lane / kChunks, chunk = lane % kChunks;
  const SharedTile<D> to{tile};
  const T* p = from + row * stride + chunk * 8;
#pragma unroll
  for (int i = 0; i < kKeys; i += 2) {
    const bool wanted = row + i < count;
    copy_async(to.at(row + i, chunk), wanted ? p : from, wanted);
    p += 2 * stride;
  }
}

template <class T>
__device__ __forceinline__ void attend(Running& run, const uint32_t (&q)[D / 16][2], uint32_t stage,
                                       float scale, int count) {
  const SharedTile<D> keys{stage}, values{stage + kTileBytes};
  const int r = int(threadIdx.x) % 32 / 4;
  float even[4] = {}, odd[4] = {};  // keys r (0, 1) and r + 8 (2, 3); heads 2 c and 2 c + 1
#pragma unroll
  for (int s = 0; s < D / 16; s += 2) {
    uint32_t a[4], b[4];
    keys.load_a(a, 0, s);
    keys.load_a(b, 0, s + 1);
    mma<T>(even, a, q[s][0], q[s][1]);
    mma<T>(odd, b, q[s + 1][0], q[s + 1][1]);
  }
  float p[4], factor[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    p[h] = r < count ? (even[h] + odd[h]) * scale : -INFINITY;
    p[2 + h] = r + 8 < count ? (even[2 + h] + odd[2 + h]) * scale : -INFINITY;
    const float largest = fmaxf(run.largest[h], across_keys<Max>(fmaxf(p[h], p[2 + h])));
    factor[h] = exp2_fast(run.largest[h] - largest);
    p[h] = exp2_fast(p[h] - largest), p[2 + h] = exp2_fast(p[2 + h] - largest);
    run.total[h] = fmaf(run.total[h], factor[h], p[h] + p[2 + h]);
    run.largest[h] = largest;
  }
  // From (key, heads) to (head, keys).
  const uint32_t low = transposed_matrix(pack_pair<T>(p[0], p[1]));
  const uint32_t high = transposed_matrix(pack_pair<T>(p[2], p[3]));
#pragma unroll
  for (int m = 0; m < D / 16; ++m) {
    uint32_t v[4];
    values.load_b_rows(v, 0, 2 * m);
    const uint32_t columns[4] = {v[0], v[2], v[1], v[3]};
    float(&to)[4] = run.sums[m];
#pragma unroll
    for (int i = 0; i < 4; ++i) to[i] *= factor[i % 2];
    mma<T>(to, columns, low, high);
  }
}

// The sequence of a token, for whole warps; q_len 0: none.
__device__ __forceinline__ Sequence find_sequence(const Sequences& s, int64_t token) {
  const int lane = int(threadIdx.x) % 32;
  Sequence found = {};
  for (int first = 0; first < s.count; first += 32) {
    Sequence mine = {};
    if (first + lane < s.count) mine = s.p[first + lane];
    const bool here = token >= mine.q_begin && token < int64_t(mine.q_begin) + mine.q_len;
    const unsigned lanes = __ballot_sync(0xffffffffu, here);
    if (!lanes) continue;
    const int from = __ffs(int(lanes)) - 1;
    found.q_begin = __shfl_sync(0xffffffffu, mine.q_begin, from);
    found.q_len = __shfl_sync(0xffffffffu, mine.q_len, from);
    found.kv_begin = __shfl_sync(0xffffffffu, mine.kv_begin, from);
    found.kv_len = __shfl_sync(0xffffffffu, mine.kv_len, from);
    break;
  }
  return found;
}

template <class T>
__global__ void __launch_bounds__(kThreads) attention_many_kernel(ManyArgs<T> a) {
  extern __shared__ __align__(256) std::byte memory[];
  enter();
  const int64_t token = blockIdx.y;
  const int kv_head = int(blockIdx.x);
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32, r = lane / 4, c = lane % 4;
  const Sequence sequence = find_sequence(a.sequences, token);
  if (sequence.q_len == 0) return;
  const int visible = visible_keys(sequence, token);

  // Queries first: loads are answered in order.
  uint32_t q[D / 16][2];
  const T* const query = a.q.at(token, int64_t(kv_head) * a.group + r, D) + 2 * c;
#pragma unroll
  for (int i = 0; i < D / 8; ++i) {
    q[i / 2][i % 2] = r < a.group ? *reinterpret_cast<const uint32_t*>(query + 8 * i) : 0;
  }
  const uint32_t stages = shared_address(memory) + uint32_t(warp * kStages * kStageBytes);
  const auto ask = [&](uint32_t stage, int key) {
    if (key < visible) {
      const int64_t slot = int64_t(sequence.kv_begin) + key;
      request_rows(stage, a.k.at(slot, kv_head, D), a.k.stride, visible - key);
      request_rows(stage + kTileBytes, a.v.at(slot, kv_head, D), a.v.stride, visible - key);
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  };
#pragma unroll
  for (int i = 0; i < kStages; ++i)
    ask(stages + uint32_t(i * kStageBytes), kKeys * warp + i * kStep);

  Running run;
  uint32_t stage = stages;
  for (int key = kKeys * warp; key < visible; key += kStep) {
    asm volatile("cp.async.wait_group %0;" ::"n"(kStages - 1) : "memory");
    __syncwarp();
    attend<T>(run, q, stage, a.scale, visible - key);
    __syncwarp();
    ask(stage, key + kStages * kStep);
    stage = stage + kStageBytes == stages + kStages * kStageBytes ? stages : stage + kStageBytes;
  }
  // What is still on its way are the empty groups behind the end.
  __syncthreads();  // the memory of keys and values becomes that of the sums
  float* const sums = reinterpret_cast<float*>(memory);  // [kWarps][kGroup][kSumStride]
  float2* const stats = reinterpret_cast<float2*>(sums + kWarps * kGroup * kSumStride);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const float total = across_keys<Sum>(run.total[h]);
    if (r == 0) stats[warp * kGroup + 2 * c + h] = make_float2(run.largest[h], total);
  }
#pragma unroll
  for (int m = 0; m < D / 16; ++m) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      sums[(warp * kGroup + 2 * c + i % 2) * kSumStride + 16 * m + r + 8 * (i / 2)] =
          run.sums[m][i];
    }
  }
  __syncthreads();
  const int d = int(threadIdx.x);
  static_assert(kThreads == D);
  for (int g = 0; g < a.group; ++g) {
    const auto [largest, total, sum] =
        sum_of_warps<kWarps>(stats + g, sums + g * kSumStride + d, kGroup, kSumStride);
    const int64_t head = int64_t(kv_head) * a.group + g;
    a.out.at(token, head, D)[d] = from_f32<T>(sum / total);
    if (d == 0) a.lse.set(token, head, (largest + log2f(total)) * kLn2);
  }
}

}  // namespace

bool attention_decode_many(const Context& c, const AttentionCall& a) {
  if (!tensor_core_types(a) || a.kv.k.dtype != a.q.dtype || a.width() != D || a.group() > kGroup ||
      a.tokens() * a.kv_heads() < c.sm_count || a.tokens() > kFewQueries * a.sequences.dim(0) ||
      a.tokens() > 65535 || !heads_aligned(a.out, a.q, a.kv.k, a.kv.v)) {
    return false;
  }
  with_attention_types(a, [&](auto t, auto) {
    using T = decltype(t);
    const ManyArgs<T> args{heads<T>(a.out),        log_sums(a.lse),
                           heads<const T>(a.q),    heads<const T>(a.kv.k),
                           heads<const T>(a.kv.v), sequences_of(a.sequences),
                           int(a.group()),         kLog2E / std::sqrt(float(D))};
    const auto kernel = attention_many_kernel<T>;
    allow_shared(c, kernel);
    launch(c, {dim3(unsigned(a.kv_heads()), unsigned(a.tokens())), dim3(kThreads), kShared}, kernel,
           args);
  });
  return true;
}

}  // namespace nibble::cuda
