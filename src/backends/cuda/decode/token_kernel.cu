// SPDX-License-Identifier: MIT
// One token of one sequence through all layers and the head in one launch: one block a
// multiprocessor, a barrier of the grid between phases.
//
// A layer has five phases: qkv, attention, attn_out, gate_up with swiglu, down. Norms are computed
// by every block for itself before its product, and heads (norm, rotation, cache) by every team
// that attends with them: equal values cost less than a barrier. The residual never leaves a
// block. A warp asks for its first weights of the next phase as soon as its registers
// are free, so that memory works while blocks wait for each other.
//
// Sums are those of the kernels of single ops, in the same order: the results are theirs, bit for
// bit (gemv.cu, norm.cu, heads.cu, attention_decode.cu).
#include <cstdlib>

#include "backends/cuda/decode/held_ops.h"
#include "backends/cuda/decode/token_attention.cuh"
#include "backends/cuda/decode/token_product.cuh"
#include "backends/cuda/decode/token_residual.cuh"
#include "backends/cuda/launch.h"

namespace nibble::cuda {
namespace {

// Weights fetched to the L2 cache: attn_out (1) and gate_up (2) while others attend, down (4) and
// the next qkv (8) from gate_up on.
constexpr unsigned kAhead = 15;

// The layers, and what is behind the last.
NIBBLE_HOST_DEVICE inline size_t table_bytes(const TokenArgs& a) {
  return size_t(a.layers + 1) * sizeof(TokenLayer);
}

template <class K, int kPacks, bool kClock>
__global__ void __launch_bounds__(kTokenThreads, 1)
    token_kernel(const __grid_constant__ TokenArgs a) {
  extern __shared__ __align__(16) std::byte shared[];
  __shared__ uint4 zeros[2];
  TokenLayer* const layers = reinterpret_cast<TokenLayer*>(shared);
  std::byte* const area = shared + table_bytes(a) + Residual<kPacks>::bytes(a.width);
  bf16* const token = reinterpret_cast<bf16*>(area);
  const int t = int(threadIdx.x), lane = t % 32, warp = t / 32;
  for (int i = t; i < int(table_bytes(a) / 4); i += kTokenThreads) {
    reinterpret_cast<uint32_t*>(layers)[i] = reinterpret_cast<const uint32_t*>(a.layer)[i];
  }
  if (t < 2) zeros[t] = make_uint4(0, 0, 0, 0);
  __syncthreads();

  const int qkv_rows = (a.q_heads + 2 * a.kv_heads) * kHead, att = a.q_heads * kHead;
  const TokenLane x(reinterpret_cast<const uint4*>(area), zeros, lane);
  const Sequence sequence = *a.sequence;
  const int slot = *a.slot;
  GridBarrier grid(a.barrier);
  const Residual<kPacks> residual(shared + table_bytes(a), a.width);
  Stream stream;
  Marks<kClock> clock;
  clock.start();
  const auto begin = [&](const auto& product) {
    stream = Stream();  // nothing is kept from before
    stream.part = product.task(warp);
    request(stream.units, stream.part, lane);
  };
  const auto sums_behind = [&](int in) { return reinterpret_cast<float*>(token + in); };
  const auto stage = [&](const bf16* p, int in) {
    stage_token(token, p, in, in / int(kUnitCols), true, kTokenThreads);
    __syncthreads();
  };

  begin(Product<false>(layers[0].qkv, a.width, qkv_rows));
  residual.ask_weight(layers[0].attn_norm);
  residual.read(a.x);
  for (int l = 0; l < a.layers; ++l) {
    const TokenLayer& layer = layers[l];
    residual.normalise(token, layer.attn_norm.type, a.eps);
    clock.add(Mark::norm);
    multiply_strips(Product<false>(layer.qkv, a.width, qkv_rows), stream, UnitRange(), x,
                    sums_behind(a.width),
                    [&](int row, float v) { a.qkv[row] = from_f32<bf16>(v); });

    clock.add(Mark::qkv);
    attention_phase<K>(a, layer, sequence, slot, grid, area, clock, [&] {
      const Product<false> attn_out(layer.attn_out, att, a.width);
      begin(attn_out);
      if (warp != kTokenWarps - 1) return;
      if (a.ahead & 1) attn_out.fetch_ahead();
      if (a.ahead & 2) Product<true>(layer.gate_up, a.width, 2 * a.ffn).fetch_ahead();
    });
    const Product<false> attn_out(layer.attn_out, att, a.width);
    const Product<true> gate_up(layer.gate_up, a.width, 2 * a.ffn);
    const Product<false> down(layer.down, a.ffn, a.width);
    clock.add(Mark::attend);
    grid.arrive();
    residual.ask_weight(layer.ffn_norm);
    grid.wait();
    clock.add(Mark::attend_wait);

    stage(a.att, att);
    clock.add(Mark::stage);
    multiply_strips(attn_out, stream, gate_up.task(warp), x, sums_behind(att),
                    [&](int row, float v) { a.sum[row] = from_f32<bf16>(v); });
    clock.add(Mark::out);
    grid.arrive();
    grid.wait();
    clock.add(Mark::out_wait);

    const Product<false> next(layers[l + 1].qkv, a.width, l + 1 < a.layers ? qkv_rows : a.vocab);
    if (warp == kTokenWarps - 1 && (a.ahead & 4)) down.fetch_ahead();
    if (warp == kTokenWarps - 1 && (a.ahead & 8) && l + 1 < a.layers) next.fetch_ahead();
    residual.add(a.sum);
    residual.normalise(token, layer.ffn_norm.type, a.eps);
    clock.add(Mark::norm);
    multiply_strips(gate_up, stream, down.task(warp), x, sums_behind(a.width),
                    [&](int row, float gate, float up) {
                      a.act[row] = swiglu_of(from_f32<bf16>(gate), from_f32<bf16>(up));
                    });
    clock.add(Mark::up);
    grid.arrive();
    residual.ask_weight(layers[l + 1].attn_norm);
    grid.wait();
    clock.add(Mark::up_wait);

    stage(a.act, a.ffn);
    clock.add(Mark::stage);
    multiply_strips(down, stream, next.task(warp), x, sums_behind(a.ffn),
                    [&](int row, float v) { a.sum[row] = from_f32<bf16>(v); });
    clock.add(Mark::down);
    grid.arrive();
    grid.wait();
    clock.add(Mark::down_wait);
    residual.add(a.sum);
  }
  residual.normalise(token, layers[a.layers].attn_norm.type, a.eps);
  multiply_strips(Product<false>(layers[a.layers].qkv, a.width, a.vocab), stream, UnitRange(), x,
                  sums_behind(a.width), [&](int row, float v) { a.logits.set(row, v); });
  clock.add(Mark::head);
  clock.print();
}

// Token and sums of the largest product of a block, or the teams of attention.
template <class K>
size_t area_bytes(const Context& c, const TokenArgs& a) {
  const auto product = [&](int64_t in, int64_t strips, int halves) {
    const int64_t units = in / kUnitCols, count = (strips + c.sm_count - 1) / c.sm_count;
    // Sums of all parts, and scales.
    return size_t(in) * 2 + size_t(halves * count * (parts_of(int(units)) + 1) * kUnitRows) * 4;
  };
  return std::max({product(a.width, strips_of((a.q_heads + 2 * a.kv_heads) * kHead), 1),
                   product(a.q_heads * kHead, strips_of(a.width), 1),
                   product(a.width, strips_of(a.ffn), 2), product(a.ffn, strips_of(a.width), 1),
                   product(a.width, strips_of(a.vocab), 1), kTeams<K> * kTeamBytes<K>});
}

template <class K, int kPacks, bool kClock = false>
bool launch_as(const Context& c, const TokenArgs& a) {
  const auto kernel = token_kernel<K, kPacks, kClock>;
  const size_t bytes = table_bytes(a) + Residual<kPacks>::bytes(a.width) + area_bytes<K>(c, a);
  if (bytes + 1024 > c.shared_per_block || a.kv_heads > kTeams<K> * c.sm_count) return false;
  allow_shared(c, kernel);
  int resident_blocks = 0;
  NIBBLE_CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident_blocks, kernel, kTokenThreads,
                                                            bytes));
  if (resident_blocks < 1 || !c.cooperative) return false;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(unsigned(c.sm_count));
  config.blockDim = dim3(kTokenThreads);
  config.dynamicSmemBytes = bytes;
  config.stream = c.stream;
  cudaLaunchAttribute resident;
  resident.id = cudaLaunchAttributeCooperative;
  resident.val.cooperative = 1;
  config.attrs = &resident, config.numAttrs = 1;
  NIBBLE_CUDA(cudaLaunchKernelEx(&config, kernel, a));
  return true;
}

template <class K>
bool launch_with(const Context& c, TokenArgs& a) {
  a.splits = shares::splits_for<K, kHead>(c.sm_count, a.kv_heads);
  const int group = a.q_heads / a.kv_heads;
  a.share_sums = reinterpret_cast<float*>(c.scratch());
  a.share_stats =
      reinterpret_cast<float2*>(a.share_sums + int64_t(a.kv_heads) * a.splits * group * kHead);
  a.share_done = c.counters();
  a.barrier = c.barrier_words();
  a.scale = kLog2E / std::sqrt(float(kHead));
  a.ahead = kAhead;
  if (const char* ahead = std::getenv("NIBBLE_TOKEN_AHEAD")) a.ahead = unsigned(std::atoi(ahead));
  if (std::is_same_v<K, bf16> && a.width <= 8 * kTokenThreads &&
      std::getenv("NIBBLE_TOKEN_CLOCK")) {
    return launch_as<bf16, 1, true>(c, a);
  }
  return a.width <= 8 * kTokenThreads ? launch_as<K, 1>(c, a) : launch_as<K, 2>(c, a);
}

}  // namespace

void prepare_token(const Context& c) {
  allow_shared(c, token_kernel<bf16, 1, false>);
  allow_shared(c, token_kernel<bf16, 2, false>);
  allow_shared(c, token_kernel<f8, 1, false>);
  allow_shared(c, token_kernel<f8, 2, false>);
  allow_shared(c, token_kernel<bf16, 1, true>);
}

bool launch_token(const Context& c, TokenArgs& a, bool f8_cache) {
  return f8_cache ? launch_with<f8>(c, a) : launch_with<bf16>(c, a);
}

}  // namespace nibble::cuda
