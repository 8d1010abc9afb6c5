// SPDX-License-Identifier: MIT
#include "train/ranks/rank_exchange.h"

#include <algorithm>
#include <cstring>

#include "core/error.h"
#include "core/half.h"

namespace nibble {
namespace {

constexpr int64_t kBlockBytes = kNvfp4Block / 2 + 1;  // codes and scale

// Whether a rank's gradients of a parameter come whole: those of an embedding are rows of tokens,
// to which a tied head adds a matrix.
bool gradient_is_whole(const ParamSpec& p, const Config& c, const TrainSettings& s) {
  return p.slot != ParamSlot::embed || (c.tied && s.loss == LossKind::ce);
}

bool read_as_nvfp4(const ParamSpec& p, const Config& c, const TrainSettings& s) {
  if (p.slot == ParamSlot::embed) return c.tied && s.head() == Recipe::nvfp4;
  if (!p.is_linear()) return false;
  return (p.slot == ParamSlot::head ? s.head() : s.recipe) == Recipe::nvfp4;
}

// Beside NVFP4 the forward reads an embedding, norms, biases and dense layers: their masters.
bool master_is_read(const ParamSpec& p, const Config& c, const TrainSettings& s) {
  return p.slot == ParamSlot::embed || !read_as_nvfp4(p, c, s);
}

DType gradient_type(const ParamSpec& p, const TrainSettings& s) {
  return p.is_matrix() ? s.grad : s.stat;
}

// A copy where it is the first, fp32 sums after that.
void add_or_copy(Tensor sum, const std::byte* from, DType type, bool copy) {
  if (copy) std::memset(sum.data, 0, sum.bytes());
  if (copy && type == sum.dtype) {
    std::memcpy(sum.data, from, sum.bytes());
    return;
  }
  const int64_t n = sum.numel();
  if (!copy) {
    add_in_order(sum, make_tensor(const_cast<std::byte*>(from), type, {n}));
    return;
  }
  float* const to = sum.as<float>();  // of bf16, exactly
  const auto* const values = reinterpret_cast<const bf16_t*>(from);
  for (int64_t i = 0; i < n; ++i) to[i] = to_float(values[i]);
}

}  // namespace

BatchTokens tokens_of_batch(const PackedBatch& b) {
  BatchTokens t;
  t.row.resize(b.ids.size());
  for (const int32_t r : b.order) {  // by id
    const int32_t id = b.ids[size_t(r)];
    if (t.ids.empty() || t.ids.back() != id) t.ids.push_back(id);
    t.row[size_t(r)] = int32_t(t.ids.size()) - 1;
  }
  return t;
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
      if (read_as_nvfp4(p, c, s)) w.weights += others * (n / kNvfp4Block * uint64_t(kBlockBytes));
    }
  }
  w.embed_row = uint64_t(c.C) * dtype_bytes(s.grad);
  return w;
}

RankExchange::RankExchange(Comm& comm, TrainState& state)
    : comm_(comm),
      state_(state),
      shards_(state.groups(), state.config(), comm.size(), state.settings().shard_window) {
  const TrainSettings& s = state.settings();
  if (s.ranks != comm.size() || s.rank != comm.rank() || s.memory != MemoryMode::sharded) {
    throw_internal("a state of rank {} of {} on rank {} of {}", s.rank, s.ranks, comm.rank(),
                   comm.size());
  }
  if (s.stat != DType::f32) throw_internal("sums over ranks are fp32");
  if (!state.backend().memory_is_host()) {
    throw_usage("several ranks train on CPUs so far: use --device cpu");
  }
}

bool RankExchange::sends_all(const ShardPiece& p) const {
  return gradient_is_whole(spec(p), state_.config(), state_.settings());
}

Tensor RankExchange::sum_of(const ShardPiece& piece) const {
  for (const OwnedPart& own : state_.tensors().owned) {
    if (own.of.param != piece.param || piece.begin < own.of.begin) continue;
    if (piece.begin + piece.count > own.of.begin + own.of.count) continue;
    return own.sum.slice(piece.begin - own.of.begin, piece.count);
  }
  throw_internal("rank {} does not own {}..{} of parameter {}", rank(), piece.begin,
                 piece.begin + piece.count, piece.param);
}

std::pair<int64_t, int64_t> RankExchange::meet(const ShardPiece& piece, int32_t id) const {
  const int64_t width = state_.config().C, begin = int64_t(id) * width;
  return {std::max(begin, piece.begin), std::min(begin + width, piece.begin + piece.count)};
}

void RankExchange::begin_round(std::vector<BatchTokens> tokens, bool first) {
  tokens_ = std::move(tokens);
  first_ = first;
}

size_t RankExchange::gradient_bytes(const ShardPiece& piece, int from) const {
  const size_t size = dtype_bytes(gradient_type(spec(piece), state_.settings()));
  size_t n = sends_all(piece) ? size_t(piece.count) : 0;
  if (sends_rows(piece)) {
    for (const int32_t id : tokens_[size_t(from)].ids) {
      const auto [begin, end] = meet(piece, id);
      if (begin < end) n += size_t(end - begin);
    }
  }
  return n * size;
}

std::byte* RankExchange::write_gradients(const ShardPiece& piece, std::byte* to) const {
  Backend& be = state_.backend();
  if (sends_all(piece)) {
    const Tensor grad = grad_of(state_.tensors().grads, spec(piece));
    const Tensor part = grad.view({grad.numel()}).slice(piece.begin, piece.count);
    be.download(to, part);
    to += part.bytes();
  }
  if (!sends_rows(piece)) return to;
  const Tensor rows = state_.tensors().embed_rows;
  const Tensor flat = rows.view({rows.numel()});
  const BatchTokens& own = tokens_[size_t(rank())];
  for (size_t u = 0; u < own.ids.size(); ++u) {
    const auto [begin, end] = meet(piece, own.ids[u]);
    if (begin >= end) continue;
    const int64_t row_begin = int64_t(own.ids[u]) * rows.dim(1);
    const Tensor part = flat.slice(int64_t(u) * rows.dim(1) + begin - row_begin, end - begin);
    be.download(to, part);
    to += part.bytes();
  }
  return to;
}

const std::byte* RankExchange::add(const ShardPiece& piece, int from, const std::byte* bytes) {
  const DType type = gradient_type(spec(piece), state_.settings());
  const size_t size = dtype_bytes(type);
  const Tensor sum = sum_of(piece);
  const bool begins = first_ && from == 0;
  if (sends_all(piece)) {
    add_or_copy(sum, bytes, type, begins);
    bytes += size_t(piece.count) * size;
  } else if (begins) {
    std::memset(sum.data, 0, sum.bytes());
  }
  if (!sends_rows(piece)) return bytes;
  for (const int32_t id : tokens_[size_t(from)].ids) {
    const auto [begin, end] = meet(piece, id);
    if (begin >= end) continue;
    // Without a head's gradient before it the first row is written, as one rank writes it.
    add_or_copy(sum.slice(begin - piece.begin, end - begin), bytes, type,
                begins && !sends_all(piece));
    bytes += size_t(end - begin) * size;
  }
  return bytes;
}

void RankExchange::add_gradients(int64_t layer) {
  at(layer == shards_.last_layer() ? std::string("the gradients of the head")
     : layer < 0                   ? std::string("the gradients of the embedding")
                                   : fmt::format("the gradients of layer {}", layer));
  state_.backend().sync();
  TrainTensors& t = state_.tensors();
  const auto ranks = size_t(size());
  for (int64_t k = 0; k < shards_.windows(layer); ++k) {
    std::vector<ConstBytes> to(ranks);
    std::vector<Bytes> from(ranks);
    std::byte* out = t.sent.data;
    std::byte* in = t.heard.data;
    for (int r = 0; r < size(); ++r) {
      std::byte* const begin = out;
      for (const ShardPiece& p : shards_.window(r, layer, k)) out = write_gradients(p, out);
      to[size_t(r)] = {begin, size_t(out - begin)};
      size_t expected = 0;
      for (const ShardPiece& p : shards_.window(rank(), layer, k)) expected += gradient_bytes(p, r);
      from[size_t(r)] = {in, expected};
      in += expected;
    }
    comm_.exchange(to, from);
    for (int r = 0; r < size(); ++r) {
      const std::byte* heard = from[size_t(r)].data();
      for (const ShardPiece& p : shards_.window(rank(), layer, k)) heard = add(p, r, heard);
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

const LinearWeight* RankExchange::packed_rows(const ShardPiece& piece, int64_t& row_offset) const {
  const ParamSpec& p = spec(piece);
  const bool tied = p.slot == ParamSlot::embed && state_.config().tied;
  const ParamSpec& as = tied ? state_.groups().table.back() : p;  // the head
  row_offset = as.row_offset;
  return state_.packed_of(as);
}

size_t RankExchange::weight_bytes(const ShardPiece& piece) const {
  int64_t row_offset = 0;
  const Tensor master = state_.master_of(spec(piece));
  size_t n = master ? size_t(piece.count) * dtype_bytes(master.dtype) : 0;
  if (packed_rows(piece, row_offset)) n += size_t(piece.count / kNvfp4Block * kBlockBytes);
  return n;
}

namespace {

// The canonical bytes of the rows a range of elements touches.
struct TouchedRows {
  int64_t row, rows, first_block, blocks;  // blocks of the range, counted from the first row's
  std::vector<uint8_t> codes, scales;
  TouchedRows(const LinearWeight& w, int64_t begin, int64_t count)
      : row(begin / w.in),
        rows((begin + count - 1) / w.in + 1 - row),
        first_block((begin - row * w.in) / kNvfp4Block),
        blocks(count / kNvfp4Block),
        codes(size_t(rows * w.in / 2)),
        scales(size_t(rows * w.in / kNvfp4Block)) {}
  uint8_t* range_codes() { return codes.data() + first_block * kNvfp4Block / 2; }
  uint8_t* range_scales() { return scales.data() + first_block; }
};

}  // namespace

void RankExchange::write_weights(const ShardPiece& piece, std::byte* to) const {
  Backend& be = state_.backend();
  if (const Tensor master = state_.master_of(spec(piece))) {
    const Tensor part = master.view({master.numel()}).slice(piece.begin, piece.count);
    be.download(to, part);
    to += part.bytes();
  }
  int64_t offset = 0;
  const LinearWeight* const w = packed_rows(piece, offset);
  if (!w) return;
  TouchedRows t(*w, piece.begin, piece.count);
  be.unpack_rows(*w, offset + t.row, t.rows, t.codes, t.scales);
  const size_t code_bytes = size_t(t.blocks * kNvfp4Block / 2);
  std::memcpy(to, t.range_codes(), code_bytes);
  std::memcpy(to + code_bytes, t.range_scales(), size_t(t.blocks));
}

void RankExchange::read_weights(const ShardPiece& piece, const std::byte* from) {
  Backend& be = state_.backend();
  if (const Tensor master = state_.master_of(spec(piece))) {
    const Tensor part = master.view({master.numel()}).slice(piece.begin, piece.count);
    be.upload(part, from);
    from += part.bytes();
  }
  int64_t offset = 0;
  const LinearWeight* const w = packed_rows(piece, offset);
  if (!w) return;
  TouchedRows t(*w, piece.begin, piece.count);
  // Rows that have other owners, too, keep those parts.
  const bool cut = piece.begin % w->in != 0 || (piece.begin + piece.count) % w->in != 0;
  if (cut) be.unpack_rows(*w, offset + t.row, t.rows, t.codes, t.scales);
  const size_t code_bytes = size_t(t.blocks * kNvfp4Block / 2);
  std::memcpy(t.range_codes(), from, code_bytes);
  std::memcpy(t.range_scales(), from + code_bytes, size_t(t.blocks));
  be.pack_rows(*w, offset + t.row, t.rows, t.codes, t.scales);
}

void RankExchange::share_weights() {
  at("the weights after an update");
  state_.backend().sync();
  TrainTensors& t = state_.tensors();
  for (int64_t layer = shards_.last_layer(); layer >= -1; --layer) {
    for (int64_t k = 0; k < shards_.windows(layer); ++k) {
      std::vector<Tensor> parts;
      std::byte* at = t.heard.data;
      for (int r = 0; r < size(); ++r) {
        size_t n = 0;
        for (const ShardPiece& p : shards_.window(r, layer, k)) {
          if (r == rank()) write_weights(p, at + n);
          n += weight_bytes(p);
        }
        parts.push_back(make_tensor(at, DType::u8, {int64_t(n)}));
        at += n;
      }
      comm_.all_gather(parts);
      for (int r = 0; r < size(); ++r) {
        const std::byte* from = parts[size_t(r)].data;
        for (const ShardPiece& p : shards_.window(r, layer, k)) {
          if (r != rank()) read_weights(p, from);
          from += weight_bytes(p);
        }
      }
    }
  }
}

void RankExchange::fetch(StateBytes what, size_t param, uint64_t at, uint64_t n,
                         std::span<std::byte> out) {
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
