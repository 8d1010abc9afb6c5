// SPDX-License-Identifier: MIT
// Who does what of a product. A task is a part of a strip (device/gemv_units.cuh), for one warp.
//
// qkv, gate_up and the head have enough strips for all blocks: a block takes whole ones. attn_out
// and down have 1.2 a block: there a cluster of blocks takes strips together, each block the same
// quarters of all of them (so it needs these quarters of the token alone), and sends the sums of
// its parts to the block that owns the strip.
//
// The strips of gate_up are dealt out in the order in which down wants them: the first that each
// block finishes make the first columns of each rank, and down's tasks begin with those, so that
// it multiplies while the last of them are on their way.
#pragma once
#include "backends/cuda/decode/token_args.h"
#include "backends/cuda/device/cluster.cuh"
#include "backends/cuda/device/gemv_units.cuh"

namespace nibble::cuda {

struct alignas(16) TokenTask {
  uint32_t begin;    // of its first unit, in bytes from the weight's begin
  uint32_t sums;     // shared memory of the strip's owner: where its 16 sums go
  uint32_t barrier;  // ... that counts them; none in the head
  // Where its units begin in the block's token (16 bits), their number (never 0), the place of the
  // weight in TokenLayer.
  uint32_t packed;

  __device__ __forceinline__ uint32_t at() const { return packed & 0xffff; }
  __device__ __forceinline__ uint32_t count() const { return packed >> 16 & 0xff; }
  __device__ __forceinline__ uint32_t weight() const { return packed >> 24; }
};
__device__ __forceinline__ TokenTask task_at(uint32_t address) {
  const uint4 t = load_chunk(address);
  return {t.x, t.y, t.z, t.w};
}

// The products, without regard to blocks.
struct PhaseShape {
  int units, strips, halves;  // strips of one half
  bool split_k;               // by the blocks of a cluster

  NIBBLE_HOST_DEVICE PhaseShape(const TokenArgs& a, int phase) {
    const int att = a.q_heads * 128, qkv = (a.q_heads + 2 * a.kv_heads) * 128;
    const int in = phase == kAttnOut ? att : phase == kFfnDown ? a.ffn : a.width;
    const int out = phase == kQkv      ? qkv
                    : phase == kGateUp ? a.ffn
                    : phase == kLogits ? a.vocab
                                       : a.width;
    units = in / int(kUnitCols), strips = out / int(kUnitRows);
    halves = phase == kGateUp ? 2 : 1;
    split_k = phase == kAttnOut || phase == kFfnDown;
  }
};

// Strip number i when they are taken from `ranks` equal pieces in turn.
NIBBLE_HOST_DEVICE inline int interleaved_strip(int strips, int i, int ranks) {
  return i % ranks * (strips / ranks) + i / ranks;
}

// What one block has of a product.
struct PhaseWork {
  PhaseShape shape;
  StripSplitK cut;
  int ranks, rank;   // of the blocks that take strips together
  int first, count;  // strips
  int groups;        // of those blocks
  bool interleaved;  // strips first, first + groups, ... as interleaved_strip numbers them ...
  int interleave;    // ... with so many pieces
  int parts;         // of a strip, this block's
  int slots;         // strips this block owns: first + rank, first + rank + ranks, ...

  NIBBLE_HOST_DEVICE PhaseWork(const TokenArgs& a, int phase, int block, int blocks)
      : shape(a, phase), cut(shape.units) {
    ranks = shape.split_k ? a.cluster : 1;
    rank = block % ranks;
    const int group = block / ranks;
    groups = blocks / ranks, interleave = a.cluster, interleaved = phase == kGateUp;
    first = interleaved ? group : int(int64_t(shape.strips) * group / groups);
    count = interleaved ? (shape.strips - group + groups - 1) / groups
                        : int(int64_t(shape.strips) * (group + 1) / groups) - first;
    parts = cut.part_count() / ranks;
    slots = (count - rank + ranks - 1) / ranks;
  }
  // The number of strip i of those this block (or its cluster) takes.
  NIBBLE_HOST_DEVICE int strip(int i) const {
    return interleaved ? interleaved_strip(shape.strips, first + i * groups, interleave)
                       : first + i;
  }
  // The tasks of shared strips go part by part, so that the first need only the first columns.
  NIBBLE_HOST_DEVICE int early_parts() const { return (parts + 1) / 2; }
  NIBBLE_HOST_DEVICE int early_tasks() const { return count * early_parts(); }
  NIBBLE_HOST_DEVICE int unit_middle() const { return cut.begin(rank * parts + early_parts()); }
  NIBBLE_HOST_DEVICE int tasks() const { return count * shape.halves * parts; }
  // Columns of the token this block needs.
  NIBBLE_HOST_DEVICE int unit_begin() const {
    return cut.quarter_begin(rank * StripSplitK::kQuarters / ranks);
  }
  NIBBLE_HOST_DEVICE int unit_end() const {
    return cut.quarter_begin((rank + 1) * StripSplitK::kQuarters / ranks);
  }
};

// Task `index` of this block.
__device__ __forceinline__ TokenTask make_task(const PhaseWork& w, int phase, int index,
                                               uint32_t sums, uint32_t barriers) {
  int strip, half = 0, part;
  if (w.shape.split_k) {
    part = index / w.count, strip = index - part * w.count;
  } else {
    strip = index / (w.shape.halves * w.parts);
    const int rest = index - strip * w.shape.halves * w.parts;
    half = rest / w.parts, part = rest - half * w.parts;
  }
  part += w.rank * w.parts;
  const int owner = strip % w.ranks, slot = strip / w.ranks;
  TokenTask t;
  const int begin = w.cut.begin(part);
  t.begin = uint32_t((half * w.shape.strips + w.strip(strip)) * w.shape.units + begin) *
            uint32_t(kUnitBytes);
  const int weight = phase == kLogits ? int(kQkv) : phase, count = w.cut.begin(part + 1) - begin;
  t.packed = uint32_t(begin - w.unit_begin()) | uint32_t(count) << 16 |
             uint32_t(weight * int(sizeof(TokenWeight))) << 24;
  t.sums = sums + uint32_t(((slot * w.shape.halves + half) * w.cut.part_count() + part) *
                           int(kUnitRows) * int(sizeof(float)));
  t.barrier = barriers + uint32_t(slot) * 8;
  if (w.ranks > 1) {
    t.sums = dsmem_address(t.sums, uint32_t(owner));
    t.barrier = dsmem_address(t.barrier, uint32_t(owner));
  }
  return t;
}

}  // namespace nibble::cuda
