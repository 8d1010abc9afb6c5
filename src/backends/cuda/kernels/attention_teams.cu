// SPDX-License-Identifier: MIT
// Attention for few queries a sequence and long caches: a block is one team (attention_shares.cuh).
#include "backends/cuda/device/dependency.cuh"
#include "backends/cuda/kernels/attention_shares.cuh"
#include "backends/cuda/launch.h"

namespace nibble::cuda {
namespace {

constexpr int64_t kFewQueries = 8;  // a sequence, on average

template <class T, class K, int D>
__global__ void __launch_bounds__(shares::kThreads) teams_kernel(shares::DecodeArgs<T, K> a) {
  enter();
  extern __shared__ __align__(16) std::byte memory[];
  const int64_t token = blockIdx.z;
  const int kv_head = int(blockIdx.y), split = int(blockIdx.x);
  const int found = sequence_of(a.sequences, token);
  if (found < 0) return;
  const shares::Share share(token, kv_head, split, a.splits, a.sequences.p[found]);
  if (share.begin >= share.end) return;
  const shares::WholeBlock team;
  shares::begin_share<T, K, D>(a, share, team, memory);
  shares::finish_share<T, K, D>(
      a, share, team, memory, a.q.at(token, int64_t(kv_head) * a.group, D), [](std::byte*, int) {});
}

template <class T, class K, int D>
void decode(const Context& c, const AttentionCall& call) {
  const auto args = shares::decode_args<T, K, D>(c, call);
  const auto kernel = teams_kernel<T, K, D>;
  allow_shared(c, kernel);
  launch(c,
         {dim3(unsigned(args.splits), unsigned(args.kv_heads), unsigned(call.tokens())),
          dim3(shares::kThreads), shares::shared_bytes<K, D>()},
         kernel, args);
}

template <class T, class K>
void decode(const Context& c, const AttentionCall& call) {
  if (call.width() == 128) {
    decode<T, K, 128>(c, call);
  } else {
    decode<T, K, 64>(c, call);
  }
}

}  // namespace

bool attention_teams(const Context& c, const AttentionCall& a) {
  if (!tensor_core_types(a) || a.group() > shares::kGroup ||
      a.tokens() > kFewQueries * a.sequences.dim(0) || a.tokens() > 65535 ||
      !heads_aligned(a.out, a.q, a.kv.k, a.kv.v)) {
    return false;
  }
  with_attention_types(a, [&](auto t, auto k) { decode<decltype(t), decltype(k)>(c, a); });
  return true;
}

}  // namespace nibble::cuda
