// SPDX-License-Identifier: MIT
#include "train/ranks/rank_exchange.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "core/error.h"
#include "train/ranks/packed_blocks.h"

namespace nibble {

RankExchange::RankExchange(Comm& comm, TrainState& state)
    : comm_(comm),
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
  for (size_t w = 0; w < ways_.size(); ++w) {
    ways_[w].comm = &comm.beside(w);
    ways_[w].part = int64_t(w);
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

RankExchange::Ticket RankExchange::add(int64_t layer, std::string what,
                                       std::function<void()> work) {
  Way& way = way_of(layer);
  const uint64_t number =
      way.queue.add([comm = way.comm, what = std::move(what), work = std::move(work)] {
        comm->at(what);
        work();
      });
  return {size_t(way.part), number};
}

void RankExchange::add_gradients(int64_t layer) {
  state_.backend().sync();
  // The backward may run ahead of the wire by one layer: two layers' gradients exist.
  wait(std::exchange(last_gradients_,
                     add(layer, fmt::format("step {}, the gradients of {}", step_, name_of(layer)),
                         [this, layer] { exchange_gradients(layer); })));
}

uint64_t RankExchange::bytes_sent() const {
  uint64_t all = comm_.bytes_sent();
  for (const Way& w : ways_) all += w.comm->bytes_sent();
  return all;
}

double RankExchange::waited_seconds() const {
  double all = 0;
  for (const Way& w : ways_) all += w.queue.waited_seconds();
  return all;
}

std::string RankExchange::name_of(int64_t layer) const {
  return layer == shards_.last_layer() ? std::string("the head")
         : layer < 0                   ? std::string("the embedding")
                                       : fmt::format("layer {}", layer);
}

// While one window is under way the next is made ready and begun, and then the first taken in: the
// wire does not wait for either. `make` fills its part of the buffers.
void RankExchange::pass_windows(int64_t layer, const MakeWindow& make, const TakeWindow& take) {
  TrainTensors& t = state_.tensors();
  const auto part = int64_t(t.heard.bytes()) / (kWays * kExchangesUnderWay);
  const Way& way = way_of(layer);
  const int64_t first_part = way.part * kExchangesUnderWay;
  std::array<std::unique_ptr<Comm::UnderWay>, kExchangesUnderWay> under_way;
  std::array<WindowParts, kExchangesUnderWay> parts;
  const int64_t n = shards_.windows(layer), ahead = kExchangesUnderWay - 1;
  for (int64_t k = 0; k < n + ahead; ++k) {
    const int64_t turn = k % kExchangesUnderWay;
    if (k < n) {
      WindowParts& p = parts[size_t(turn)];
      p.to.assign(size_t(size()), {});
      p.from.assign(size_t(size()), {});
      const int64_t begin = (first_part + turn) * part;
      make(k, t.sent.data + begin, t.heard.data + begin, p);
      under_way[size_t(turn)] = way.comm->begin_exchange(p.to, p.from);
    }
    if (k < ahead) continue;
    const auto first = size_t((k - ahead) % kExchangesUnderWay);
    under_way[first]->end();
    take(k - ahead, parts[first]);
  }
}

void RankExchange::exchange_gradients(int64_t layer) {
  const auto make = [&](int64_t k, std::byte* out, std::byte* in, WindowParts& w) {
    for (int r = 0; r < size(); ++r) {
      std::byte* const begin = out;
      for (const ShardPiece& p : shards_.window(r, layer, k)) out = wire_.write_gradients(p, out);
      w.to[size_t(r)] = {begin, size_t(out - begin)};
      size_t expected = 0;
      for (const ShardPiece& p : shards_.window(rank(), layer, k)) {
        expected += wire_.gradient_bytes(p, r);
      }
      w.from[size_t(r)] = {in, expected};
      in += expected;
    }
  };
  pass_windows(layer, make, [&](int64_t k, const WindowParts& w) {
    for (int r = 0; r < size(); ++r) {
      const std::byte* heard = w.from[size_t(r)].data();
      for (const ShardPiece& p : shards_.window(rank(), layer, k)) heard = wire_.add(p, r, heard);
    }
  });
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
  settle();
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
    arrived_[size_t(layer + 1)] = add(
        layer, fmt::format("step {}, the weights of {} after the update", step_, name_of(layer)),
        [this, layer] { exchange_weights(layer); });
  }
}

// And those of the layer after it: where a block ends the next one's norm, or the last, is read.
void RankExchange::await_weights(int64_t layer) {
  wait(arrived_[size_t(layer + 1)]);
  wait(arrived_[size_t(std::min(layer + 1, shards_.last_layer()) + 1)]);
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
  wait(come_[layer % 2]);
}

void RankExchange::begin_block(int64_t layer) {
  if (laid_out_[layer % 2] == layer) return;
  state_.backend().sync();  // nothing reads what was there
  laid_out_[layer % 2] = layer;
  come_[layer % 2] = add(layer, fmt::format("step {}, the weights of layer {}", step_, layer),
                         [this, layer] { exchange_block(layer, true); });
}

void RankExchange::lend_block(int64_t layer) {
  laid_out_[layer % 2] = -1;
  wait(add(layer, fmt::format("the weights of layer {} for rank 0", layer),
           [this, layer] { exchange_block(layer, false); }));
}

void RankExchange::exchange_block(int64_t layer, bool for_all) {
  Backend& be = state_.backend();
  const ParamGroups& g = state_.groups();
  const auto gathered = [&](const ShardPiece& p) {
    return state_.shared_out(StateBytes::nvfp4, g.table[p.param]);
  };
  const auto make = [&](int64_t k, std::byte*, std::byte* at, WindowParts& w) {
    Bytes own;
    for (int r = 0; r < size(); ++r) {
      std::byte* const begin = at;
      for (const ShardPiece& p : shards_.window(r, layer, k)) {
        if (!gathered(p)) continue;
        if (r == rank()) be.download(at, own_blocks(p));
        at += packed_block_bytes(p.count);
      }
      const Bytes part(begin, size_t(at - begin));
      if (r == rank()) own = part;
      if (r == rank() || for_all || rank() == 0) w.from[size_t(r)] = part;
    }
    for (int r = 0; r < size(); ++r) {
      if (r == rank() || for_all || r == 0) w.to[size_t(r)] = own;
    }
  };
  pass_windows(layer, make, [&](int64_t k, const WindowParts& w) {
    if (!for_all && rank() != 0) return;
    for (int r = 0; r < size(); ++r) {
      const std::byte* bytes = w.from[size_t(r)].data();
      for (const ShardPiece& p : shards_.window(r, layer, k)) {
        if (!gathered(p)) continue;
        const ParamSpec& spec = g.table[p.param];
        write_blocks(be, *state_.updated_packed_of(spec), spec.row_offset, p.begin, p.count, bytes);
        bytes += packed_block_bytes(p.count);
      }
    }
  });
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

void RankExchange::settle() {
  for (Way& w : ways_) w.queue.wait_for_all();
}

void RankExchange::exchange_weights(int64_t layer) {
  const auto make = [&](int64_t k, std::byte*, std::byte* at, WindowParts& w) {
    for (int r = 0; r < size(); ++r) {
      size_t n = 0;
      for (const ShardPiece& p : shards_.window(r, layer, k)) {
        if (r == rank()) wire_.write_weights(p, at + n);
        n += wire_.weight_bytes(p);
      }
      w.from[size_t(r)] = {at, n};
      at += n;
    }
    w.to.assign(size_t(size()), w.from[size_t(rank())]);
  };
  pass_windows(layer, make, [&](int64_t k, const WindowParts& w) {
    for (int r = 0; r < size(); ++r) {
      if (r == rank()) continue;
      const std::byte* from = w.from[size_t(r)].data();
      for (const ShardPiece& p : shards_.window(r, layer, k)) {
        wire_.read_weights(p, from);
        from += wire_.weight_bytes(p);
      }
    }
  });
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
