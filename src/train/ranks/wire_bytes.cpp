// SPDX-License-Identifier: MIT
#include "train/ranks/wire_bytes.h"

#include <algorithm>

#include "train/memory.h"
#include "train/ranks/packed_blocks.h"

namespace nibble {
namespace {

bool read_as_nvfp4(const ParamSpec& p, const Config& c, const TrainSettings& s) {
  if (p.slot == ParamSlot::embed) return c.tied && s.head() == Recipe::nvfp4;
  if (!p.is_linear()) return false;
  return (p.slot == ParamSlot::head ? s.head() : s.recipe) == Recipe::nvfp4;
}

// Beside NVFP4 the forward reads an embedding, norms, biases and dense layers: their masters.
bool master_is_read(const ParamSpec& p, const Config& c, const TrainSettings& s) {
  return p.slot == ParamSlot::embed || !read_as_nvfp4(p, c, s);
}

}  // namespace

bool gradient_is_whole(const ParamSpec& p, const Config& c, const TrainSettings& s) {
  return p.slot != ParamSlot::embed || (c.tied && s.loss == LossKind::ce);
}

DType gradient_type(const ParamSpec& p, const TrainSettings& s) {
  return p.is_matrix() ? s.grad : s.stat;
}

uint64_t window_bytes(const Shards& shards, const ParamGroups& g, const Config& c,
                      const TrainSettings& s) {
  const auto piece_bytes = [&](const ShardPiece& piece) {
    const ParamSpec& p = g.table[piece.param];
    const auto n = uint64_t(piece.count), size = uint64_t(dtype_bytes(gradient_type(p, s)));
    uint64_t gradient = gradient_is_whole(p, c, s) ? n * size : 0, weight = 0;
    if (p.slot == ParamSlot::embed) gradient += std::min(n, uint64_t(s.max_tokens * c.C)) * size;
    if (master_is_read(p, c, s)) weight += n * dtype_bytes(master_type_of(g, s, p));
    if (read_as_nvfp4(p, c, s)) weight += uint64_t(packed_block_bytes(piece.count));
    return std::max(gradient, weight);
  };
  uint64_t most = 0;
  for (int64_t layer = -1; layer <= shards.last_layer(); ++layer) {
    for (int64_t k = 0; k < shards.windows(layer); ++k) {
      for (int r = 0; r < shards.ranks(); ++r) {
        uint64_t bytes = 0;
        for (const ShardPiece& p : shards.window(r, layer, k)) bytes += piece_bytes(p);
        most = std::max(most, bytes);
      }
    }
  }
  return most * uint64_t(shards.ranks());
}

WireBytes wire_bytes(const ParamGroups& g, const Config& c, const TrainSettings& s, int rank) {
  const Shards shards(g, c, s.ranks, s.shard_window);
  WireBytes w;
  const auto others = uint64_t(s.ranks - 1);
  for (int r = 0; r < s.ranks; ++r) {
    for (const ShardPiece& piece : shards.owned(r)) {
      const ParamSpec& p = g.table[piece.param];
      const auto n = uint64_t(piece.count);
      if (r != rank && gradient_is_whole(p, c, s)) {
        w.gradients += n * dtype_bytes(gradient_type(p, s));
      }
      if (r != rank) continue;
      if (master_is_read(p, c, s)) {
        w.weights += others * n * dtype_bytes(master_type_of(g, s, p));
      }
      if (!read_as_nvfp4(p, c, s)) continue;
      const uint64_t bytes = others * uint64_t(packed_block_bytes(piece.count));
      if (!is_gathered(g, s, p)) {
        w.weights += bytes;
        continue;
      }
      // Once in the forward and once in the backward, but the last two blocks are still there when
      // the backward begins, and the first two when the next forward does.
      const int64_t back = p.layer < c.L - 2, forward_again = p.layer >= 2;
      w.blocks += bytes * uint64_t(1 + back);
      w.blocks_again += bytes * uint64_t(forward_again + back);
    }
  }
  w.embed_row = uint64_t(c.C) * dtype_bytes(s.grad);
  return w;
}

}  // namespace nibble
