// SPDX-License-Identifier: MIT
// Stream-K: the K steps of all tiles form one list, of which every block takes an equal range, so
// that all SMs finish together where whole tiles would leave some idle.
//
// A range may begin or end within a tile; such partial sums are stored to global memory. Fixup, in
// the order of the blocks (deterministic, no atomics on data): when a block is done with its range,
// it waits for the other contributors of its partial tiles and reduces its slice of each. A tile
// with at most three contributors is reduced by its first contributor instead: this tile is the
// last of that block's range, so it keeps its own sums in registers and adds the others', which are
// mostly there by then.
//
// Waiting is safe because all blocks are resident (one an SM, and dependent launches start only
// when all have begun), and short because all have equal work. (A cooperative launch would
// guarantee it, docs/adr/0013.)
#pragma once
#include <algorithm>
#include <cstdint>

namespace nibble::cuda {

// The schedule: a tile of `steps` K steps has `pieces` pieces, and every block gets an equal number
// of consecutive pieces. (32-bit arithmetic and few divisions, which would take longer than a
// step.)
struct StreamKSchedule {
  unsigned tiles = 0, steps = 0, pieces = 1, blocks = 0;
  unsigned base = 0, more = 0;            // a block has base pieces, the first `more` one more
  unsigned step_base = 0, step_more = 0;  // likewise the steps of a piece

  // First piece of a block; owner block of a piece.
  __device__ __forceinline__ unsigned first_piece(unsigned block) const {
    return block * base + min(block, more);
  }
  __device__ __forceinline__ unsigned block_of(unsigned piece) const {
    const unsigned larger = more * (base + 1);
    return piece < larger ? piece / (base + 1) : more + (piece - larger) / base;
  }
  // First K step of a piece within its tile.
  __device__ __forceinline__ unsigned first_step(unsigned piece_of_tile) const {
    return piece_of_tile * step_base + min(piece_of_tile, step_more);
  }
};

// Iterates over the K steps of this block's range, tile by tile.
struct StreamKIterator {
  int steps, last_tile, last_end;  // where the range ends
  int tile, step, end;             // steps [step, end) of the tile are left

  __device__ __forceinline__ explicit StreamKIterator(const StreamKSchedule& list)
      : steps(int(list.steps)) {
    const unsigned from = list.first_piece(blockIdx.x), last = list.first_piece(blockIdx.x + 1) - 1;
    const unsigned first_tile = from / list.pieces, end_tile = last / list.pieces;
    tile = int(first_tile), step = int(list.first_step(from - first_tile * list.pieces));
    last_tile = int(end_tile), last_end = int(list.first_step(last + 1 - end_tile * list.pieces));
    end = end_of_tile();
  }
  __device__ __forceinline__ int end_of_tile() const {
    return tile == last_tile ? last_end : steps;
  }
  __device__ __forceinline__ bool done() const { return tile > last_tile; }
  // All K steps of the current tile are this block's.
  __device__ __forceinline__ bool whole() const { return step == 0 && end == steps; }
  // Advances one step; false: the range is done.
  __device__ __forceinline__ bool advance() {
    if (++step == end) ++tile, step = 0, end = end_of_tile();
    return !done();
  }
};

// Chooses between data-parallel (whole tiles), split-K (each tile over as many blocks as there are
// for it) and stream-K (all steps divided evenly). A fixup is charged as kFixupSteps steps, once or
// twice a block. tiles * steps < 2^31.
inline StreamKSchedule make_stream_k_schedule(int64_t tiles, int64_t steps, int64_t most_blocks) {
  constexpr double kFixupSteps = 2;
  const auto up = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
  int64_t pieces = 1, blocks = std::min(tiles, most_blocks);
  double least = double(up(tiles, most_blocks) * steps);
  const int64_t blocks_per_tile = std::min(most_blocks / tiles, steps);
  if (blocks_per_tile > 1 && double(up(steps, blocks_per_tile)) + kFixupSteps < least) {
    pieces = blocks_per_tile, blocks = tiles * blocks_per_tile,
    least = double(up(steps, blocks_per_tile)) + kFixupSteps;
  }
  if (tiles * steps >= most_blocks &&
      double(tiles * steps) / double(most_blocks) + 2 * kFixupSteps < least) {
    pieces = steps, blocks = most_blocks;
  }
  StreamKSchedule list;
  list.tiles = unsigned(tiles), list.steps = unsigned(steps);
  list.pieces = unsigned(pieces), list.blocks = unsigned(blocks);
  list.base = unsigned(tiles * pieces / blocks), list.more = unsigned(tiles * pieces % blocks);
  list.step_base = unsigned(steps / pieces), list.step_more = unsigned(steps % pieces);
  return list;
}

// Partial sums in global memory: kThreads threads with kN8Tiles n8 tiles of eight sums each. A
// block has two buffers, for the first and the last tile of its range. A tile's counter is that of
// its first contributor, zero between launches.
template <int kThreads, int kN8Tiles>
struct StreamKPartials {
  static constexpr size_t kBytes = size_t(2) * kThreads * kN8Tiles * 8 * sizeof(float);
  float4* sums;
  unsigned* counters;

  static __device__ __forceinline__ void sync_consumers() {
    asm volatile("bar.sync 1, %0;" ::"n"(kThreads) : "memory");
  }
  // Half `half` (four sums) of an n8 tile.
  __device__ __forceinline__ float4* at(int block, int which, int n8, int half) const {
    return sums + (((int64_t(block) * 2 + which) * kN8Tiles + n8) * 2 + half) * kThreads +
           threadIdx.x;
  }
  // Which of its two buffers a block uses for a tile.
  static __device__ __forceinline__ int place(const StreamKSchedule& list, int block, int tile) {
    return list.first_piece(unsigned(block)) < unsigned(tile) * list.pieces ? 1 : 0;
  }
  // Stores this block's partials v[half][4 n8 ..] of a tile, of which the first n8_tiles are
  // wanted, and counts them (release).
  __device__ __forceinline__ void store_partials(const StreamKSchedule& list, int tile,
                                                 int n8_tiles,
                                                 const float (&v)[2][4 * kN8Tiles]) const {
    const int which = place(list, int(blockIdx.x), tile);
#pragma unroll
    for (int g = 0; g < kN8Tiles; ++g) {
      if (g >= n8_tiles) break;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float* p = v[h] + 4 * g;
        __stcg(at(int(blockIdx.x), which, g, h), make_float4(p[0], p[1], p[2], p[3]));
      }
    }
    __threadfence();
    sync_consumers();
    if (threadIdx.x == 0) {
      const unsigned first = list.block_of(unsigned(tile) * list.pieces);
      asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counters + first) : "memory");
    }
  }
  struct Contributors {
    int first, count;  // blocks with steps of a tile
    __device__ __forceinline__ bool first_reduces() const { return count <= 3; }
  };
  static __device__ __forceinline__ Contributors contributors(const StreamKSchedule& list,
                                                              int tile) {
    const unsigned piece = unsigned(tile) * list.pieces;
    const int first = int(list.block_of(piece));
    return {first, int(list.block_of(piece + list.pieces - 1)) - first + 1};
  }
  static __device__ __forceinline__ void wait_for_partials(const unsigned* counter, int count) {
    if (threadIdx.x == 0) {
      unsigned left = 0;
      while (left < unsigned(count)) {
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(left) : "l"(counter) : "memory");
      }
    }
    sync_consumers();
  }
  // Fixup by the first contributor, which keeps its sums v in registers: adds those of the others.
  __device__ __forceinline__ void reduce_into_first(const StreamKSchedule& list, int tile,
                                                    int n8_tiles,
                                                    float (&v)[2][4 * kN8Tiles]) const {
    const Contributors s = contributors(list, tile);
    wait_for_partials(counters + s.first, s.count - 1);
    for (int b = s.first + 1; b < s.first + s.count; ++b) {
      const int which = place(list, b, tile);
#pragma unroll
      for (int g = 0; g < kN8Tiles; ++g) {
        if (g >= n8_tiles) break;
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const float4 p = __ldcg(at(b, which, g, h));
          float* const to = v[h] + 4 * g;
          to[0] += p.x, to[1] += p.y, to[2] += p.z, to[3] += p.w;
        }
      }
    }
    if (threadIdx.x == 0) counters[s.first] = 0;
  }
  // Fixup by all contributors, once all partials are stored: write(n8, sums [2][4]) for this
  // block's slice of the n8 tiles.
  template <class Write>
  __device__ __forceinline__ void reduce_slice(const StreamKSchedule& list, int tile, int n8_tiles,
                                               Write&& write) const {
    const auto [first, count] = contributors(list, tile);
    unsigned* const counter = counters + first;
    wait_for_partials(counter, count);
    // About kN8Tiles loads a block, all in flight at once: latency counts, not bytes.
    const int mine = int(blockIdx.x) - first;
    const int begin = n8_tiles * mine / count, end = n8_tiles * (mine + 1) / count;
    float v[2][4] = {};
    int g = begin, b = 0;  // of the next load
    int done = begin, of = 0;
    while (done < end) {
      float4 p[kN8Tiles][2];
#pragma unroll
      for (int k = 0; k < kN8Tiles; ++k) {
        if (g >= end) continue;
        const int which = place(list, first + b, tile);
        p[k][0] = __ldcg(at(first + b, which, g, 0)), p[k][1] = __ldcg(at(first + b, which, g, 1));
        if (++b == count) b = 0, ++g;
      }
#pragma unroll
      for (int k = 0; k < kN8Tiles; ++k) {
        if (done >= end) continue;
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          v[h][0] += p[k][h].x, v[h][1] += p[k][h].y, v[h][2] += p[k][h].z, v[h][3] += p[k][h].w;
        }
        if (++of < count) continue;
        write(done, v);
        of = 0, ++done;
#pragma unroll
        for (int h = 0; h < 2; ++h) v[h][0] = v[h][1] = v[h][2] = v[h][3] = 0;
      }
    }
    // The last reader resets the counter.
    sync_consumers();
    if (threadIdx.x == 0 && atomicAdd(counter, 1u) + 1 == 2u * unsigned(count)) *counter = 0;
  }
};

}  // namespace nibble::cuda
