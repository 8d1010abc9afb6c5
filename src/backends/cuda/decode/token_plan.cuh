// SPDX-License-Identifier: MIT
// Who does what of a product. A task is a part of a strip (device/token_units.cuh), for one warp.
//
// qkv, gate_up and the head have enough strips for all blocks: a block takes whole ones. attn_out
// and down have 1.2 a block: there a cluster of blocks takes strips together, each block the same
// quarters of all of them (so it needs these quarters of the token alone), and sends the sums of
// its parts to the block that owns the strip.
#pragma once
#include "backends/cuda/decode/token_args.h"
#include "backends/cuda/device/cluster.cuh"
#include "backends/cuda/device/token_units.cuh"

namespace nibble::cuda {

struct alignas(16) TokenTask {
  uint32_t unit;     // its first, counted from the weight's begin
  uint32_t sums;     // shared memory of the strip's owner: where its 16 sums go
  uint32_t barrier;  // ... that counts them; none in the head
  uint16_t at;       // where its units begin in the block's token
  uint8_t count;     // of its units, never 0
  uint8_t phase;
};

// The products, without regard to blocks.
struct PhaseShape {
  int units, strips, halves;  // strips of one half
  bool shared;                // by the blocks of a cluster

  NIBBLE_HOST_DEVICE PhaseShape(const TokenArgs& a, int phase) {
    const int att = a.q_heads * 128, qkv = (a.q_heads + 2 * a.kv_heads) * 128;
    const int in = phase == kAttnOut ? att : phase == kFfnDown ? a.ffn : a.width;
    const int out = phase == kQkv      ? qkv
                    : phase == kGateUp ? a.ffn
                    : phase == kLogits ? a.vocab
                                       : a.width;
    units = in / int(kUnitCols), strips = out / int(kUnitRows);
    halves = phase == kGateUp ? 2 : 1;
    shared = phase == kAttnOut || phase == kFfnDown;
  }
};

// What one block has of a product.
struct PhaseWork {
  PhaseShape shape;
  StripCut cut;
  int ranks, rank;   // of the blocks that take strips together
  int first, count;  // strips
  int parts;         // of a strip, this block's
  int slots;         // strips this block owns: first + rank, first + rank + ranks, ...

  NIBBLE_HOST_DEVICE PhaseWork(const TokenArgs& a, int phase, int block, int blocks)
      : shape(a, phase), cut(shape.units) {
    ranks = shape.shared ? a.cluster : 1;
    rank = block % ranks;
    const int group = block / ranks, groups = blocks / ranks;
    first = int(int64_t(shape.strips) * group / groups);
    count = int(int64_t(shape.strips) * (group + 1) / groups) - first;
    parts = cut.all_parts() / ranks;
    slots = (count - rank + ranks - 1) / ranks;
  }
  NIBBLE_HOST_DEVICE int tasks() const { return count * shape.halves * parts; }
  // A warp takes every kTokenWarps-th of them.
  NIBBLE_HOST_DEVICE int tasks_of_warp(int warp) const {
    return (tasks() - warp + kTokenWarps - 1) / kTokenWarps;
  }
  // Columns of the token this block needs.
  NIBBLE_HOST_DEVICE int unit_begin() const {
    return cut.quarter_begin(rank * StripCut::kQuarters / ranks);
  }
  NIBBLE_HOST_DEVICE int unit_end() const {
    return cut.quarter_begin((rank + 1) * StripCut::kQuarters / ranks);
  }
};

// Task `index` of this block.
__device__ __forceinline__ TokenTask make_task(const PhaseWork& w, int phase, int index,
                                               uint32_t sums, uint32_t barriers) {
  const int strip = index / (w.shape.halves * w.parts),
            rest = index - strip * w.shape.halves * w.parts;
  const int half = rest / w.parts, part = rest - half * w.parts + w.rank * w.parts;
  const int owner = strip % w.ranks, slot = strip / w.ranks;
  TokenTask t;
  const int begin = w.cut.begin(part);
  t.unit = uint32_t((half * w.shape.strips + w.first + strip) * w.shape.units + begin);
  t.at = uint16_t(begin - w.unit_begin());
  t.count = uint8_t(w.cut.begin(part + 1) - begin);
  t.phase = uint8_t(phase);
  t.sums = sums + uint32_t(((slot * w.shape.halves + half) * w.cut.all_parts() + part) *
                           int(kUnitRows) * int(sizeof(float)));
  t.barrier = barriers + uint32_t(slot) * 8;
  if (w.ranks > 1) {
    t.sums = address_in_block(t.sums, uint32_t(owner));
    t.barrier = address_in_block(t.barrier, uint32_t(owner));
  }
  return t;
}

}  // namespace nibble::cuda
