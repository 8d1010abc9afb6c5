// SPDX-License-Identifier: MIT
// Who owns what of a model that several ranks train: parameters and the number of ranks decide, and
// nothing else. docs/adr/0023-ranks.md
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "train/param_groups.h"

namespace nibble {

// Windows of a layer that pass between ranks at the same time, and ways on which layers do.
constexpr int64_t kExchangesUnderWay = 2, kWays = 2;

// Elements of a parameter that have one owner: those whose squares are summed together. Whole
// blocks of moments and of NVFP4.
constexpr int64_t kShardChunk = 1 << 16;

// Elements [begin, begin + count) of a parameter; begins with a chunk, ends with one or with the
// parameter.
struct ShardPiece {
  size_t param = 0;  // in the table
  int64_t begin = 0, count = 0;
  bool operator==(const ShardPiece&) const = default;
};

class Shards {
 public:
  // `window`: elements that all ranks together send in one exchange, about; the part of one is at
  // least a chunk.
  Shards(const ParamGroups& groups, const Config& config, int ranks, int64_t window);

  int ranks() const { return ranks_; }
  int64_t last_layer() const { return int64_t(layers_.size()) - 2; }  // L; the first is -1
  // What a rank owns of a layer (in the sense of PassHooks), in order of parameters and elements.
  std::span<const ShardPiece> owned(int rank, int64_t layer) const;
  // Of all layers, L first.
  std::vector<ShardPiece> owned(int rank) const;
  // The same in the parts that pass at once: window k of every rank together.
  int64_t windows(int64_t layer) const;
  std::span<const ShardPiece> window(int rank, int64_t layer, int64_t k) const;

 private:
  struct Layer {
    std::vector<std::vector<ShardPiece>> owned;                 // [rank]
    std::vector<std::vector<std::vector<ShardPiece>>> windows;  // [rank][k]
  };
  const Layer& at(int64_t layer) const { return layers_[size_t(layer + 1)]; }
  void cut(Layer& layer, int64_t window);

  int ranks_;
  std::vector<Layer> layers_;  // -1 first
};

}  // namespace nibble
