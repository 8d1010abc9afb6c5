// SPDX-License-Identifier: MIT
// The static tile scheduler of token_kernel.cuh: which warp of which block multiplies which
// weights. A task is one split-K part of one strip (16 rows; device_functions/gemv_units.cuh), for
// one warp.
//
// qkv, gate_up and the head have enough strips for all blocks: a block takes whole ones. attn_out
// and down have 1.2 strips a block: there split-K goes over the blocks of a cluster. Each block
// (rank) takes the same quarters of K of all of the cluster's strips, so it needs only these
// columns of the token, and sends its partials through DSMEM to the block that owns the strip.
//
// The strips of gate_up are interleaved so that what blocks finish first are the first columns that
// each rank of down needs: down starts with those tasks ("early") while the last columns are still
// being produced.
#pragma once
#include "backends/cuda/decode/token_args.h"
#include "backends/cuda/device_functions/cluster.cuh"
#include "backends/cuda/device_functions/gemv_units.cuh"

namespace nibble::cuda {

struct alignas(16) TokenTask {
  uint32_t begin;    // byte offset of its first unit in the packed weight
  uint32_t sums;     // DSMEM address, in the strip's owner, for its 16 partial sums
  uint32_t barrier;  // the owner's mbarrier that counts them; none in the head
  // Packed: first unit in the block's columns of the token (16 bits), number of units (8, never 0),
  // byte offset of the weight in TokenLayer (8).
  uint32_t packed;

  __device__ __forceinline__ uint32_t at() const { return packed & 0xffff; }
  __device__ __forceinline__ uint32_t count() const { return packed >> 16 & 0xff; }
  __device__ __forceinline__ uint32_t weight() const { return packed >> 24; }
};
__device__ __forceinline__ TokenTask task_at(uint32_t address) {
  const uint4 t = load_chunk(address);
  return {t.x, t.y, t.z, t.w};
}

// Sizes of a product, the same for all blocks.
struct PhaseShape {
  int columns;                // of the token
  int units, strips, halves;  // strips of one half
  bool split_k;               // over the blocks of a cluster

  NIBBLE_HOST_DEVICE PhaseShape(const TokenArgs& a, int phase) {
    const int att = a.q_heads * a.head_width, qkv = (a.q_heads + 2 * a.kv_heads) * a.head_width;
    const int in = phase == kAttnOut ? att : phase == kFfnDown ? a.ffn : a.width;
    const int out = phase == kQkv      ? qkv
                    : phase == kGateUp ? a.ffn
                    : phase == kLogits ? a.vocab
                                       : a.width;
    columns = in;
    units = int(units_across(in)), strips = out / int(kUnitRows);
    halves = phase == kGateUp ? 2 : 1;
    split_k = phase == kAttnOut || phase == kFfnDown;
  }
};

// Interleaved order: number i takes from `ranks` equal ranges of strips in turn (strips % ranks ==
// 0: one_launch.cu).
NIBBLE_HOST_DEVICE inline int interleaved_strip(int strips, int i, int ranks) {
  return i % ranks * (strips / ranks) + i / ranks;
}

// One block's share of a product.
struct PhaseWork {
  PhaseShape shape;
  StripSplitK cut;
  int ranks, rank;   // blocks that split K of the same strips (1, or the cluster)
  int first, count;  // strips of this block, or of its cluster
  int groups;        // of `ranks` blocks in the grid
  bool interleaved;  // strips first, first + groups, ... in the order of interleaved_strip
  int interleave;    // its number of ranges
  int parts;         // split-K parts of a strip that this block takes
  int slots;         // strips this block owns and reduces: first + rank, first + rank + ranks, ...

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
  // The strip that is number i of this block (or its cluster).
  NIBBLE_HOST_DEVICE int strip(int i) const {
    return interleaved ? interleaved_strip(shape.strips, first + i * groups, interleave)
                       : first + i;
  }
  // Split-K tasks are ordered part by part, so that the early ones need only the first columns.
  NIBBLE_HOST_DEVICE int early_parts() const { return (parts + 1) / 2; }
  NIBBLE_HOST_DEVICE int early_tasks() const { return count * early_parts(); }
  NIBBLE_HOST_DEVICE int unit_middle() const { return cut.begin(rank * parts + early_parts()); }
  NIBBLE_HOST_DEVICE int tasks() const { return count * shape.halves * parts; }
  // The columns of the token that this block reads, in units.
  NIBBLE_HOST_DEVICE int unit_begin() const {
    return cut.quarter_begin(rank * StripSplitK::kQuarters / ranks);
  }
  NIBBLE_HOST_DEVICE int unit_end() const {
    return cut.quarter_begin((rank + 1) * StripSplitK::kQuarters / ranks);
  }
};

// Task `index` of this block in a phase.
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
