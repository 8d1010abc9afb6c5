// SPDX-License-Identifier: MIT
// Tiles of a product shared out: all steps along K of all tiles are one list, of which every block
// takes a range. Where whole tiles would leave multiprocessors idle, tiles are cut.
//
// A range may begin or end within a tile: those sums the block leaves in memory. When all of its
// products are done, it waits for the others that share the tile and adds up its part of the sums,
// in the order of the blocks. Of a tile of few blocks the first, whose last it is, keeps its own
// and adds the others', which are mostly there by then. All blocks are resident at once (one a
// multiprocessor, and what comes next starts only when all have begun), so a wait ends; all have as
// much to do, so it is short. (A cooperative launch would make sure, docs/adr/0013.)
#pragma once
#include <algorithm>
#include <cstdint>

namespace nibble::cuda {

// How a list of tiles of `steps` steps is cut: a tile has `pieces` pieces, and every block an equal
// number of neighbouring ones. (In 32 bits and with few divisions, which take longer than a step
// otherwise.)
struct StreamKSchedule {
  unsigned tiles = 0, steps = 0, pieces = 1, blocks = 0;
  unsigned base = 0, more = 0;            // a block has base pieces, the first `more` one more
  unsigned step_base = 0, step_more = 0;  // likewise the steps of a piece

  // The first piece of a block, and whose a piece is.
  __device__ __forceinline__ unsigned first_piece(unsigned block) const {
    return block * base + min(block, more);
  }
  __device__ __forceinline__ unsigned block_of(unsigned piece) const {
    const unsigned larger = more * (base + 1);
    return piece < larger ? piece / (base + 1) : more + (piece - larger) / base;
  }
  // Where a piece begins in its tile.
  __device__ __forceinline__ unsigned first_step(unsigned piece_of_tile) const {
    return piece_of_tile * step_base + min(piece_of_tile, step_more);
  }
};

// The steps of this block's range, tile by tile.
struct StreamKIterator {
  int steps, last_tile, last_end;  // where the range ends
  int tile, step, end;             // steps [step, end) of tile are left

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
  // Of the tile that begins here, all steps are this block's.
  __device__ __forceinline__ bool whole() const { return step == 0 && end == steps; }
  // To the next step; false: there is none.
  __device__ __forceinline__ bool advance() {
    if (++step == end) ++tile, step = 0, end = end_of_tile();
    return !done();
  }
};

// Shares out whole tiles, or cuts each for as many blocks as there are for it, or cuts all steps
// evenly. What a cut costs is counted in steps: leaving sums and adding them up, once or twice a
// block. tiles * steps < 2^31.
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

// The sums of tiles that blocks share: kThreads threads have kN8Tiles groups of eight each. A block
// has two places, for the first tile of its range and for the last. A tile's counter, that of the
// first of its blocks, is 0 between launches.
template <int kThreads, int kN8Tiles>
struct StreamKPartials {
  static constexpr size_t kBytes = size_t(2) * kThreads * kN8Tiles * 8 * sizeof(float);
  float4* sums;
  unsigned* counters;

  static __device__ __forceinline__ void sync_consumers() {
    asm volatile("bar.sync 1, %0;" ::"n"(kThreads) : "memory");
  }
  // The first or second four of a group.
  __device__ __forceinline__ float4* at(int block, int which, int n8, int half) const {
    return sums + (((int64_t(block) * 2 + which) * kN8Tiles + n8) * 2 + half) * kThreads +
           threadIdx.x;
  }
  // Which of its places a block has a tile in.
  static __device__ __forceinline__ int place(const StreamKSchedule& list, int block, int tile) {
    return list.first_piece(unsigned(block)) < unsigned(tile) * list.pieces ? 1 : 0;
  }
  // This block's sums of a tile: v[half][4 group ..], of which the first `groups` are wanted.
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
    int first, count;  // blocks of a tile
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
  // By the first block of a tile, which has not left its sums v: adds those of the others.
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
  // Once all have left theirs: write(group, sums [2][4]) for this block's share of the groups.
  template <class Write>
  __device__ __forceinline__ void reduce_slice(const StreamKSchedule& list, int tile, int n8_tiles,
                                               Write&& write) const {
    const auto [first, count] = contributors(list, tile);
    unsigned* const counter = counters + first;
    wait_for_partials(counter, count);
    // A block has about kN8Tiles of (group, block) to read, all of them at once: what a load waits
    // for is longer than what it brings.
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
    // The last to have read sets the counter back.
    sync_consumers();
    if (threadIdx.x == 0 && atomicAdd(counter, 1u) + 1 == 2u * unsigned(count)) *counter = 0;
  }
};

}  // namespace nibble::cuda
