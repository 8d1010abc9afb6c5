// SPDX-License-Identifier: MIT
// Which plans the kernel of a whole token takes, and what it is told of them.
#include "backends/cuda/decode/one_launch.h"

#include <algorithm>
#include <limits>

#include "backends/cuda/decode/token_args.h"
#include "backends/cuda/device_functions/packed_layout.cuh"
#include "backends/cuda/kernels/attention/attention_mma.cuh"
#include "backends/cuda/kernels/attention/attention_split_kv.cuh"
#include "backends/cuda/kernels/kernels.h"

namespace nibble::cuda {
namespace {

// Rows and columns are read in whole tiles; with heads of 64 the last unit of a row may be part
// zeros.
bool takes(const DecodePlan& p, const LinearWeight& w) {
  const int64_t columns = p.head_width == 128 ? kUnitCols : 16;
  return w.is_packed() && w.in % columns == 0 && w.out % (2 * kUnitRows) == 0 &&
         w.out <= std::numeric_limits<int>::max() / 2;
}

// Every layer is as the first: shapes, and the cache's type and strides.
bool layers_are_equal(const DecodePlan& p) {
  const DecodeLayer& first = p.layers.front();
  for (const DecodeLayer& l : p.layers) {
    if (l.down.in != first.down.in || l.kv.k.dtype != first.kv.k.dtype ||
        l.kv.k.row_stride != first.kv.k.row_stride || l.kv.v.row_stride != first.kv.v.row_stride ||
        bool(l.heads.bias) != bool(first.heads.bias) ||
        l.heads.still.begin != first.heads.still.begin ||
        l.heads.still.factor != first.heads.still.factor) {
      return false;
    }
  }
  return true;
}

bool weights_fit(const DecodePlan& p) {
  for (const DecodeLayer& l : p.layers) {
    if (!takes(p, l.qkv) || !takes(p, l.attn_out) || !takes(p, l.gate_up) || !takes(p, l.down)) {
      return false;
    }
    if (l.down.in % (4 * kUnitRows) != 0) return false;  // interleaved_strip, clusters of four
  }
  return takes(p, p.head);
}

// Vector loads: packs of eight elements, heads of whole 16 bytes.
bool is_aligned(const DecodePlan& p) {
  if (!in_packs<8>(p.x, p.rope, p.final_norm)) return false;
  for (const DecodeLayer& l : p.layers) {
    const HeadParams& h = l.heads;
    if (!in_packs<8>(l.attn_norm, l.ffn_norm, h.q_norm, h.k_norm, h.bias) ||
        !heads_aligned(l.kv.k, l.kv.v)) {
      return false;
    }
  }
  return true;
}

TokenWeight weight_of(const LinearWeight& w) {
  return {w.packed.as<uint8_t>(), w.row_scale ? w.row_scale.as<float>() : nullptr};
}

TokenArgs args_of(const DecodePlan& p) {
  TokenArgs a = {};
  const DecodeLayer& first = p.layers.front();
  a.layers = int(p.layers.size());
  a.width = int(p.x.cols()), a.ffn = int(first.down.in), a.vocab = int(p.head.out);
  a.q_heads = int(p.q_heads), a.kv_heads = int(p.kv_heads), a.head_width = int(p.head_width);
  a.x = ptr<const bf16>(p.x);
  a.logits = AnyFloats(p.logits);
  a.rope = AnyFloats(p.rope);
  a.k_stride = first.kv.k.row_stride, a.v_stride = first.kv.v.row_stride;
  a.slot = ptr<const int32_t>(p.slots);
  a.sequence = sequences_of(p.sequences).p;
  a.eps = float(p.eps);
  a.still = int(std::min(first.heads.still.begin, p.head_width));
  a.still_factor = first.heads.still.factor;
  for (size_t i = 0; i < p.layers.size(); ++i) {
    const DecodeLayer& l = p.layers[i];
    TokenLayer& to = a.layer[i];
    to.weight[kQkv] = weight_of(l.qkv), to.weight[kAttnOut] = weight_of(l.attn_out);
    to.weight[kGateUp] = weight_of(l.gate_up), to.weight[kFfnDown] = weight_of(l.down);
    to.attn_norm = AnyFloats(l.attn_norm), to.ffn_norm = AnyFloats(l.ffn_norm);
    to.q_norm = AnyFloats(l.heads.bias ? l.heads.bias : l.heads.q_norm);
    to.k_norm = AnyFloats(l.heads.k_norm);
    to.cache_k = l.kv.k.data, to.cache_v = l.kv.v.data;
  }
  // Behind the last layer: the head in the place of qkv, and the norm before it.
  a.layer[p.layers.size()].weight[kQkv] = weight_of(p.head);
  a.layer[p.layers.size()].attn_norm = AnyFloats(p.final_norm);
  return a;
}

bool launch_token(const Context& c, const DecodePlan& p, TokenLaunch launch) {
  TokenArgs args = args_of(p);
  const bool f8_cache = p.layers.front().kv.k.dtype == DType::f8_e4m3,
             bias = bool(p.layers.front().heads.bias);
  return p.head_width == 64 ? launch_token_64(c, args, f8_cache, bias, launch)
                            : launch_token_128(c, args, f8_cache, bias, launch);
}

}  // namespace

std::string one_launch_problem(const Context& c, const DecodePlan& p) {
  const DType cache = p.layers.front().kv.k.dtype;
  const int64_t width = p.x.cols();
  if (!c.token_kernel) return "the kernel was made for compute capability 9.0";
  if (c.sync_each_op) return "NIBBLE_SYNC_EACH_OP=1 asks for single ops";
  if (p.x.dim(0) != 1) return "the kernel takes one sequence";
  if (p.x.dtype != DType::bf16) return "the kernel computes in bf16";
  if (p.activations != Activations::none) return "the kernel takes activations unquantised";
  if (cache != DType::bf16 && cache != DType::f8_e4m3)
    return "the kernel reads caches of bf16 or fp8";
  if (p.head_width != 64 && p.head_width != 128) {
    return fmt::format("the kernel takes heads 64 or 128 wide, not {}", p.head_width);
  }
  if (p.q_heads / p.kv_heads > split_kv::kGroup) {
    return fmt::format("the kernel takes at most {} query heads a key head", split_kv::kGroup);
  }
  // Narrow rows are summed in another order (norm.cu).
  if (width <= kHeadWidth || width > kTokenMaxWidth) {
    return fmt::format("the kernel takes models {} to {} wide", kHeadWidth + 1, kTokenMaxWidth);
  }
  if (p.head_width == 64 && width > kTokenNarrow) {
    return fmt::format("the kernel takes models with heads of 64 up to {} wide", kTokenNarrow);
  }
  if (p.layers.size() > size_t(kTokenLayers)) {
    return fmt::format("the kernel takes at most {} layers", kTokenLayers);
  }
  if (!weights_fit(p)) return "a weight is not NVFP4, or not of whole tiles";
  if (!layers_are_equal(p) || !is_aligned(p))
    return "the layers differ from each other, or are not aligned";
  if (!launch_token(c, p, TokenLaunch::plan_only)) {
    return "a multiprocessor has no room for its share of this model";
  }
  return "";
}

// The kernel clears scratch memory before it waits for its predecessor: that must be one that uses
// none, and so the order of these three is part of what makes it right.
void decode_in_one_launch(const Context& c, const DecodePlan& p) {
  embed(c, p.x, p.embed, p.ids);
  c.finish("embed");
  rope_table(c, p.rope, p.positions, p.frequencies);
  c.finish("rope_table");
  if (!launch_token(c, p, TokenLaunch::enqueue)) {
    throw_internal("a plan that had no problem cannot be launched");
  }
  c.finish("decode_step");
}

}  // namespace nibble::cuda
