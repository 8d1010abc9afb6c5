// SPDX-License-Identifier: MIT
#include "train/ranks/piece_wire.h"

#include <algorithm>
#include <cstring>

#include "comm/comm.h"
#include "core/error.h"
#include "core/half.h"
#include "train/ranks/packed_blocks.h"
#include "train/ranks/wire_bytes.h"

namespace nibble {
namespace {

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

void PieceWire::begin_round(std::vector<BatchTokens> tokens, bool first) {
  tokens_ = std::move(tokens);
  first_ = first;
}

bool PieceWire::sends_all(const ShardPiece& p) const {
  return gradient_is_whole(spec(p), state_.config(), state_.settings());
}

Tensor PieceWire::sum_of(const ShardPiece& piece) const {
  for (const OwnedPart& own : state_.tensors().owned) {
    if (own.of.param != piece.param || piece.begin < own.of.begin) continue;
    if (piece.begin + piece.count > own.of.begin + own.of.count) continue;
    return own.sum.slice(piece.begin - own.of.begin, piece.count);
  }
  throw_internal("rank {} does not own {}..{} of parameter {}", state_.settings().rank, piece.begin,
                 piece.begin + piece.count, piece.param);
}

std::pair<int64_t, int64_t> PieceWire::meet(const ShardPiece& piece, int32_t id) const {
  const int64_t width = state_.config().C, begin = int64_t(id) * width;
  return {std::max(begin, piece.begin), std::min(begin + width, piece.begin + piece.count)};
}

size_t PieceWire::gradient_bytes(const ShardPiece& piece, int from) const {
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

std::byte* PieceWire::write_gradients(const ShardPiece& piece, std::byte* to) const {
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
  const BatchTokens& own = tokens_[size_t(state_.settings().rank)];
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

const std::byte* PieceWire::add(const ShardPiece& piece, int from, const std::byte* bytes) {
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

const LinearWeight* PieceWire::packed_rows(const ShardPiece& piece, int64_t& row_offset) const {
  const ParamSpec& p = spec(piece);
  const bool tied = p.slot == ParamSlot::embed && state_.config().tied;
  const ParamSpec& as = tied ? state_.groups().table.back() : p;  // the head
  row_offset = as.row_offset;
  return state_.packed_of(as);
}

size_t PieceWire::weight_bytes(const ShardPiece& piece) const {
  int64_t row_offset = 0;
  const Tensor master = state_.master_of(spec(piece));
  size_t n = master ? size_t(piece.count) * dtype_bytes(master.dtype) : 0;
  if (packed_rows(piece, row_offset)) n += size_t(packed_block_bytes(piece.count));
  return n;
}

void PieceWire::write_weights(const ShardPiece& piece, std::byte* to) const {
  Backend& be = state_.backend();
  if (const Tensor master = state_.master_of(spec(piece))) {
    const Tensor part = master.view({master.numel()}).slice(piece.begin, piece.count);
    be.download(to, part);
    to += part.bytes();
  }
  int64_t offset = 0;
  const LinearWeight* const w = packed_rows(piece, offset);
  if (w) read_blocks(be, *w, offset, piece.begin, piece.count, to);
}

void PieceWire::read_weights(const ShardPiece& piece, const std::byte* from) {
  Backend& be = state_.backend();
  if (const Tensor master = state_.master_of(spec(piece))) {
    const Tensor part = master.view({master.numel()}).slice(piece.begin, piece.count);
    be.upload(part, from);
    from += part.bytes();
  }
  int64_t offset = 0;
  const LinearWeight* const w = packed_rows(piece, offset);
  if (w) write_blocks(be, *w, offset, piece.begin, piece.count, from);
}

}  // namespace nibble
