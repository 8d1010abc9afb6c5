// SPDX-License-Identifier: MIT
#include "train/ranks/shards.h"

#include <algorithm>

#include "core/error.h"

namespace nibble {
namespace {

// Joins a piece to the last one where it follows it.
void join_or_append(std::vector<ShardPiece>& pieces, const ShardPiece& p) {
  if (!pieces.empty()) {
    ShardPiece& last = pieces.back();
    if (last.param == p.param && last.begin + last.count == p.begin) {
      last.count += p.count;
      return;
    }
  }
  pieces.push_back(p);
}

}  // namespace

Shards::Shards(const ParamGroups& g, const Config& c, int ranks, int64_t window) : ranks_(ranks) {
  if (ranks < 1) throw_internal("shards for {} ranks", ranks);
  layers_.resize(size_t(c.L) + 2);
  for (int64_t l = -1; l <= c.L; ++l) {
    std::vector<ShardPiece> chunks;
    int64_t all = 0;
    for (size_t i = 0; i < g.table.size(); ++i) {
      if (!g.trained[i] || layer_of(g.table[i], c) != l) continue;
      const int64_t n = g.table[i].numel();
      for (int64_t b = 0; b < n; b += kShardChunk) {
        chunks.push_back({i, b, std::min(kShardChunk, n - b)});
        all += chunks.back().count;
      }
    }
    Layer& layer = layers_[size_t(l + 1)];
    layer.owned.resize(size_t(ranks));
    layer.windows.resize(size_t(ranks));
    int64_t before = 0;
    for (const ShardPiece& p : chunks) {
      // By its middle, so that runs are as equal as chunks allow.
      const int64_t turn = std::min<int64_t>(ranks - 1, (before + p.count / 2) * ranks / all);
      before += p.count;
      join_or_append(layer.owned[size_t((turn + l + 1) % ranks)], p);
    }
    cut(layer, window);
  }
}

// At chunks, so many as fit.
void Shards::cut(Layer& layer, int64_t window) {
  const int64_t most = std::max(kShardChunk, window / ranks_);
  size_t longest = 0;
  for (size_t r = 0; r < layer.owned.size(); ++r) {
    auto& windows = layer.windows[r];
    int64_t room = 0;
    for (const ShardPiece& whole : layer.owned[r]) {
      for (int64_t b = 0; b < whole.count; b += kShardChunk) {
        const int64_t n = std::min(kShardChunk, whole.count - b);
        if (n > room) {
          windows.emplace_back();
          room = most;
        }
        join_or_append(windows.back(), {whole.param, whole.begin + b, n});
        room -= n;
      }
    }
    longest = std::max(longest, windows.size());
  }
  for (auto& windows : layer.windows) windows.resize(longest);
}

std::span<const ShardPiece> Shards::owned(int rank, int64_t layer) const {
  return at(layer).owned[size_t(rank)];
}

std::vector<ShardPiece> Shards::owned(int rank) const {
  std::vector<ShardPiece> all;
  for (int64_t l = last_layer(); l >= -1; --l) {
    const auto some = owned(rank, l);
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

int64_t Shards::windows(int64_t layer) const { return int64_t(at(layer).windows.front().size()); }

std::span<const ShardPiece> Shards::window(int rank, int64_t layer, int64_t k) const {
  return at(layer).windows[size_t(rank)][size_t(k)];
}

}  // namespace nibble
