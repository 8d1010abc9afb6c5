// SPDX-License-Identifier: MIT
#include "train/ranks/rank_exchange.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/error.h"
#include "train/ranks/packed_blocks.h"

namespace nibble {

RankExchange::RankExchange(Comm& comm, TrainState& state)
    : comm_(comm),
      beside_(comm.beside()),
      state_(state),
      wire_(state),
      shards_(state.groups(), state.config(), comm.size(), state.settings().shard_window) {
  const TrainSettings& s = state.settings();
  if (s.ranks != comm.size() || s.rank != comm.rank() || !over_ranks(s.memory)) {
    throw_internal("a state of rank {} of {} on rank {} of {}", s.rank, s.ranks, comm.rank(),
                   comm.size());
  }
  if (s.stat != DType::f32) throw_internal("sums over ranks are fp32");
  if (!state.backend().memory_is_host()) {
    throw_usage("several ranks train on CPUs so far: use --device cpu");
  }
  gathers_ = s.memory == MemoryMode::gathered;
  arrived_.resize(size_t(shards_.last_layer()) + 2);
  state.arrive = [this](std::optional<int64_t> layer) { layer ? await_weights(*layer) : settle(); };
}

RankExchange::~RankExchange() { state_.arrive = nullptr; }

// What was laid out is of the weights before the last update, or came for rank 0 alone.
void RankExchange::begin_step(int64_t step) {
  step_ = step;
  in_step_ = true;
  laid_out_[0] = laid_out_[1] = -1;
}

void RankExchange::begin_round(std::vector<BatchTokens> tokens, bool first) {
  if (!first) settle();  // the first round's forward waits for weights layer by layer
  asked_ = -1;
  wire_.begin_round(std::move(tokens), first);
}

void RankExchange::add_gradients(int64_t layer) {
  state_.backend().sync();
  // The backward may run ahead of the wire by one layer: two layers' gradients exist.
  queue_.wait(std::exchange(last_gradients_, queue_.add([this, layer, step = step_] {
    beside_.at(fmt::format("step {}, the gradients of {}", step, name_of(layer)));
    exchange_gradients(layer);
  })));
}

std::string RankExchange::name_of(int64_t layer) const {
  return layer == shards_.last_layer() ? std::string("the head")
         : layer < 0                   ? std::string("the embedding")
                                       : fmt::format("layer {}", layer);
}

void RankExchange::exchange_gradients(int64_t layer) {
  TrainTensors& t = state_.tensors();
  const auto ranks = size_t(size());
  for (int64_t k = 0; k < shards_.windows(layer); ++k) {
    std::vector<ConstBytes> to(ranks);
    std::vector<Bytes> from(ranks);
    std::byte* out = t.sent.data;
    std::byte* in = t.heard.data;
    for (int r = 0; r < size(); ++r) {
      std::byte* const begin = out;
      for (const ShardPiece& p : shards_.window(r, layer, k)) out = wire_.write_gradients(p, out);
      to[size_t(r)] = {begin, size_t(out - begin)};
      size_t expected = 0;
      for (const ShardPiece& p : shards_.window(rank(), layer, k)) {
        expected += wire_.gradient_bytes(p, r);
      }
      from[size_t(r)] = {in, expected};
      in += expected;
    }
    beside_.exchange(to, from);
    for (int r = 0; r < size(); ++r) {
      const std::byte* heard = from[size_t(r)].data();
      for (const ShardPiece& p : shards_.window(rank(), layer, k)) heard = wire_.add(p, r, heard);
    }
  }
}

std::vector<double> RankExchange::gather(double mine) {
  at("the loss");
  std::vector<double> all(static_cast<size_t>(size()));
  std::vector<Tensor> parts;
  for (double& x : all) parts.push_back(make_tensor(&x, DType::f64, {1}));
  all[size_t(rank())] = mine;
  comm_.all_gather(parts);
  return all;
}

bool RankExchange::agree(bool leader_says) {
  uint8_t said = leader_says;
  comm_.broadcast(make_tensor(&said, DType::u8, {1}));
  return said != 0;
}

std::vector<double> RankExchange::squares() {
  queue_.wait_for_all();
  at("the norm of the gradients");
  TrainTensors& t = state_.tensors();
  Backend& be = state_.backend();
  std::vector<Tensor> chunks;
  for (const OwnedPart& own : t.owned) {
    for (int64_t b = 0; b < own.of.count; b += kShardChunk) {
      chunks.push_back(own.sum.slice(b, std::min(kShardChunk, own.of.count - b)));
    }
  }
  // One after the other, rank by rank.
  std::vector<std::vector<double>> by_rank;
  std::vector<Tensor> parts;
  for (int r = 0; r < size(); ++r) {
    int64_t n = 0;
    for (const ShardPiece& p : shards_.owned(r)) n += (p.count + kShardChunk - 1) / kShardChunk;
    by_rank.emplace_back(size_t(n));
  }
  for (auto& values : by_rank) {
    parts.push_back(make_tensor(values.data(), DType::f64, {int64_t(values.size())}));
  }
  if (!chunks.empty()) {
    const Tensor sums = t.squares.slice(0, int64_t(chunks.size()));
    be.sums_of_squares(sums, chunks);
    be.download(by_rank[size_t(rank())].data(), sums);
  }
  comm_.all_gather(parts);
  // By parameter and chunk, as one rank adds them.
  const ParamGroups& g = state_.groups();
  std::vector<std::vector<double>> by_param(g.table.size());
  for (size_t i = 0; i < g.table.size(); ++i) {
    if (g.trained[i]) {
      by_param[i].resize(size_t((g.table[i].numel() + kShardChunk - 1) / kShardChunk));
    }
  }
  for (int r = 0; r < size(); ++r) {
    size_t at = 0;
    for (const ShardPiece& p : shards_.owned(r)) {
      for (int64_t b = 0; b < p.count; b += kShardChunk) {
        by_param[p.param][size_t((p.begin + b) / kShardChunk)] = by_rank[size_t(r)][at++];
      }
    }
  }
  std::vector<double> squares;
  for (size_t i = 0; i < by_param.size(); ++i) {
    if (!g.trained[i]) continue;
    double sum = 0;
    for (const double part : by_param[i]) sum += part;
    squares.push_back(sum);
  }
  return squares;
}

// In the order in which the next forward reads them.
void RankExchange::share_weights() {
  state_.backend().sync();
  for (int64_t layer = -1; layer <= shards_.last_layer(); ++layer) {
    arrived_[size_t(layer + 1)] = queue_.add([this, layer, step = step_] {
      beside_.at(fmt::format("step {}, the weights of {} after the update", step, name_of(layer)));
      exchange_weights(layer);
    });
  }
}

// And those of the layer after it: where a block ends the next one's norm, or the last, is read.
void RankExchange::await_weights(int64_t layer) {
  queue_.wait(arrived_[size_t(std::min(layer + 1, shards_.last_layer()) + 1)]);
  if (gathers_ && layer >= 0 && layer < shards_.last_layer()) await_block(layer);
}

void RankExchange::await_block(int64_t layer) {
  if (!in_step_ && call_others) return call_others(layer);
  begin_block(layer);
  // The next one comes to where the one before was, which is done with. The backward begins where
  // the forward ended.
  const int64_t next = layer > asked_ ? layer + 1 : layer - 1;
  asked_ = layer;
  if (in_step_ && next >= 0 && next < shards_.last_layer()) begin_block(next);
  queue_.wait(come_[layer % 2]);
}

void RankExchange::begin_block(int64_t layer) {
  if (laid_out_[layer % 2] == layer) return;
  state_.backend().sync();  // nothing reads what was there
  laid_out_[layer % 2] = layer;
  come_[layer % 2] = queue_.add([this, layer, step = step_] {
    beside_.at(fmt::format("step {}, the weights of layer {}", step, layer));
    exchange_block(layer, true);
  });
}

void RankExchange::lend_block(int64_t layer) {
  laid_out_[layer % 2] = -1;
  queue_.wait(queue_.add([this, layer] {
    beside_.at(fmt::format("the weights of layer {} for rank 0", layer));
    exchange_block(layer, false);
  }));
}

void RankExchange::exchange_block(int64_t layer, bool for_all) {
  TrainTensors& t = state_.tensors();
  Backend& be = state_.backend();
  const ParamGroups& g = state_.groups();
  const auto ranks = size_t(size());
  const auto gathered = [&](const ShardPiece& p) {
    return state_.shared_out(StateBytes::nvfp4, g.table[p.param]);
  };
  for (int64_t k = 0; k < shards_.windows(layer); ++k) {
    std::vector<Bytes> parts(ranks);
    std::byte* at = t.heard.data;
    for (size_t r = 0; r < ranks; ++r) {
      std::byte* const begin = at;
      for (const ShardPiece& p : shards_.window(int(r), layer, k)) {
        if (!gathered(p)) continue;
        if (int(r) == rank()) be.download(at, own_blocks(p));
        at += packed_block_bytes(p.count);
      }
      parts[r] = {begin, size_t(at - begin)};
    }
    std::vector<ConstBytes> to(ranks);
    std::vector<Bytes> from(ranks);
    for (size_t r = 0; r < ranks; ++r) {
      if (int(r) == rank()) continue;
      if (for_all || r == 0) to[r] = parts[size_t(rank())];
      if (for_all || rank() == 0) from[r] = parts[r];
    }
    beside_.exchange(to, from);
    if (!for_all && rank() != 0) continue;
    for (size_t r = 0; r < ranks; ++r) {
      const std::byte* bytes = parts[r].data();
      for (const ShardPiece& p : shards_.window(int(r), layer, k)) {
        if (!gathered(p)) continue;
        const ParamSpec& spec = g.table[p.param];
        write_blocks(be, *state_.updated_packed_of(spec), spec.row_offset, p.begin, p.count, bytes);
        bytes += packed_block_bytes(p.count);
      }
    }
  }
}

// Of a piece that this rank owns.
Tensor RankExchange::own_blocks(const ShardPiece& piece) const {
  for (const OwnedPart* own : state_.owned(piece.param)) {
    if (piece.begin < own->of.begin || piece.begin >= own->of.begin + own->of.count) continue;
    return own->nvfp4.slice(packed_block_bytes(piece.begin - own->of.begin),
                            packed_block_bytes(piece.count));
  }
  throw_internal("rank {} does not own {} of parameter {}", rank(), piece.begin, piece.param);
}

void RankExchange::settle() { queue_.wait_for_all(); }

void RankExchange::exchange_weights(int64_t layer) {
  TrainTensors& t = state_.tensors();
  for (int64_t k = 0; k < shards_.windows(layer); ++k) {
    std::vector<Tensor> parts;
    std::byte* at = t.heard.data;
    for (int r = 0; r < size(); ++r) {
      size_t n = 0;
      for (const ShardPiece& p : shards_.window(r, layer, k)) {
        if (r == rank()) wire_.write_weights(p, at + n);
        n += wire_.weight_bytes(p);
      }
      parts.push_back(make_tensor(at, DType::u8, {int64_t(n)}));
      at += n;
    }
    beside_.all_gather(parts);
    for (int r = 0; r < size(); ++r) {
      const std::byte* from = parts[size_t(r)].data;
      for (const ShardPiece& p : shards_.window(r, layer, k)) {
        if (r != rank()) wire_.read_weights(p, from);
        from += wire_.weight_bytes(p);
      }
    }
  }
}

void RankExchange::fetch(StateBytes what, size_t param, uint64_t at, uint64_t n,
                         std::span<std::byte> out) {
  settle();
  comm_.at("reading what other ranks own");
  const ParamSpec& p = state_.groups().table[param];
  const DType type = master_type_of(state_.groups(), state_.settings(), p);
  const MomentFormat format = state_.tensors().moments[param].format;
  std::vector<std::byte> own, heard;
  struct Place {
    uint64_t to, bytes;
  };
  std::vector<std::vector<Place>> places(static_cast<size_t>(size()));
  for (int r = 0; r < size(); ++r) {
    for (const ShardPiece& piece : shards_.owned(r)) {
      if (piece.param != param) continue;
      for (const OwnedRange& range : owned_ranges(what, piece, p.numel(), type, format)) {
        const uint64_t begin = std::max(at, range.whole);
        const uint64_t end = std::min(at + n, range.whole + range.bytes);
        if (begin >= end) continue;
        places[size_t(r)].push_back({begin - at, end - begin});
        if (r != rank()) continue;
        for (const OwnedPart& part : state_.tensors().owned) {
          if (part.of != piece) continue;
          const Tensor t = owned_tensor(what, part);
          const std::byte* const bytes = t.data + range.part + (begin - range.whole);
          own.insert(own.end(), bytes, bytes + (end - begin));
        }
      }
    }
  }
  std::vector<ConstBytes> to(size_t(size()), ConstBytes{});
  std::vector<Bytes> from(size_t(size()), Bytes{});
  std::vector<size_t> sizes;
  for (const auto& of_rank : places) {
    size_t bytes = 0;
    for (const Place& place : of_rank) bytes += place.bytes;
    sizes.push_back(bytes);
  }
  to[0] = own;
  if (rank() == 0) {
    size_t all = 0;
    for (const size_t bytes : sizes) all += bytes;
    heard.resize(all);
    size_t begin = 0;
    for (size_t r = 0; r < sizes.size(); begin += sizes[r++]) {
      from[r] = Bytes(heard).subspan(begin, sizes[r]);
    }
  }
  comm_.exchange(to, from);
  if (rank() != 0) return;
  const std::byte* next = heard.data();
  for (const auto& of_rank : places) {
    for (const Place& place : of_rank) {
      std::memcpy(out.data() + place.to, next, place.bytes);
      next += place.bytes;
    }
  }
}

}  // namespace nibble
