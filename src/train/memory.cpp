// SPDX-License-Identifier: MIT
#include "train/memory.h"

#include <algorithm>

#include "core/error.h"
#include "train/ranks/packed_blocks.h"
#include "train/ranks/wire_bytes.h"
#include "train/teacher.h"

namespace nibble {
namespace {

// A slot is small when any of its parameters is: they share one tensor.
bool small_slot(const ParamGroups& g, ParamSlot slot, int64_t layer) {
  return std::ranges::any_of(g.table, [&](const ParamSpec& p) {
    return p.slot == slot && p.layer == layer && p.numel() < kSmallTensor;
  });
}

DType master_type(const ParamGroups& g, const TrainSettings& s, ParamSlot slot, int64_t layer) {
  // The reference backend computes in one type.
  const DType wide = s.stat == DType::f32 ? DType::f32 : s.master;
  return small_slot(g, slot, layer) ? wide : s.master;
}

WeightLayout master_layout(const Config& c, const ParamGroups& g, const TrainSettings& s) {
  WeightLayout layout;
  layout.embed = master_type(g, s, ParamSlot::embed, -1);
  layout.norm = s.stat == DType::f32 ? DType::f32 : s.master;
  // What is frozen and read as NVFP4 needs no master; what is shared out has parts of one.
  const auto linear = [&](ParamSlot slot, int64_t layer, Recipe recipe) {
    const bool whole = recipe != Recipe::nvfp4 || !over_ranks(s.memory);
    const bool kept = recipe != Recipe::nvfp4 || (whole && !frozen_slot(g, slot, layer));
    return LinearLayout{master_type(g, s, slot, layer), false, kept};
  };
  for (int64_t l = 0; l < c.L; ++l) {
    for (const auto& m : BlockWeights::linears()) {
      layout.linear.push_back(linear(m.slot, l, s.recipe));
    }
  }
  layout.head = linear(ParamSlot::head, -1, s.head());
  layout.head_is_embed = c.tied;
  return layout;
}

// The moments of a parameter; small ones stay exact.
MomentFormat format_of(const ParamSpec& p, const TrainSettings& s) {
  return p.numel() < kSmallTensor ? MomentFormat::f32 : s.optimizer.moments;
}

Moments make_moments(Arena& a, MomentFormat format, int64_t n) {
  const int64_t bytes = int64_t(moment_bytes(format, n));
  Moments m;
  m.format = format;
  m.m = a.take(DType::u8, {bytes});
  m.v = a.take(DType::u8, {bytes});
  return m;
}

// What this rank owns, and the buffers of an exchange.
void make_shares(TrainArenas& arenas, const Config& c, const ParamGroups& g, const TrainSettings& s,
                 TrainTensors& t) {
  const Shards shards(g, c, s.ranks, s.shard_window);
  for (const ShardPiece& piece : shards.owned(s.rank)) {
    const ParamSpec& p = g.table[piece.param];
    OwnedPart own;
    own.of = piece;
    const auto slot = slot_of(t.master, p);
    if (const Tensor whole = slot.tensor ? rows_of_param(*slot.tensor, p)
                             : slot.linear->dense
                                 ? slot.linear->dense.slice(p.row_offset, p.shape[0])
                                 : Tensor{}) {
      own.master = whole.view({p.numel()}).slice(piece.begin, piece.count);
    } else {
      own.master = arenas.master.take(master_type(g, s, p.slot, p.layer), {piece.count});
    }
    own.sum = arenas.gradients.take(DType::f32, {piece.count});
    own.moments = make_moments(arenas.moments, format_of(p, s), piece.count);
    if (is_gathered(g, s, p)) {
      own.nvfp4 = arenas.nvfp4.take(DType::u8, {packed_block_bytes(piece.count)});
    }
    t.owned.push_back(own);
  }
  constexpr uint64_t kAlign = 64;
  const uint64_t window = (window_bytes(shards, g, c, s) + kAlign - 1) / kAlign * kAlign;
  const auto bytes = int64_t(window) * kWays * kExchangesUnderWay;
  t.sent = arenas.exchange.take(DType::u8, {bytes});
  t.heard = arenas.exchange.take(DType::u8, {bytes});
}

}  // namespace

DType master_type_of(const ParamGroups& g, const TrainSettings& s, const ParamSpec& p) {
  if (!p.is_matrix()) return s.stat == DType::f32 ? DType::f32 : s.master;
  return master_type(g, s, p.slot, p.layer);
}

bool frozen_slot(const ParamGroups& g, ParamSlot slot, int64_t layer) {
  for (size_t i = 0; i < g.table.size(); ++i) {
    if (g.table[i].slot == slot && g.table[i].layer == layer && g.trained[i]) return false;
  }
  return true;
}

bool is_gathered(const ParamGroups& g, const TrainSettings& s, ParamSlot slot, int64_t layer) {
  if (s.memory != MemoryMode::gathered || s.recipe != Recipe::nvfp4 || layer < 0) return false;
  for (size_t i = 0; i < g.table.size(); ++i) {
    if (g.table[i].slot == slot && g.table[i].layer == layer && !g.trained[i]) return false;
  }
  return true;
}

LinearWeight packed_like(Arena& a, const Backend& be, const LinearWeight& like, int64_t rows) {
  LinearWeight w;
  w.out = rows;
  w.in = like.in;
  w.packed = a.take(DType::u8, {int64_t(be.packed_bytes(rows, like.in))});
  return w;
}

std::string_view memory_mode_name(MemoryMode mode) {
  switch (mode) {
    case MemoryMode::resident: return "resident";
    case MemoryMode::release: return "release";
    case MemoryMode::remake: return "remake";
    case MemoryMode::host: return "host";
    case MemoryMode::sharded: return "sharded";
    case MemoryMode::gathered: return "gathered";
  }
  return "?";
}

std::string_view recompute_name(Recompute recompute) {
  switch (recompute) {
    case Recompute::none: return "none";
    case Recompute::mlp: return "mlp";
    case Recompute::block: return "block";
  }
  return "?";
}

std::vector<Arena*> TrainArenas::all() {
  std::vector<Arena*> used = every();
  std::erase_if(used, [&](const Arena* a) {
    return (a == &teacher || a == &teacher_embedding || a == &exchange) && a->peak() == 0;
  });
  return used;
}

StepShape largest_step(const TrainSettings& s) {
  return {s.max_tokens, s.max_outputs, s.max_sequences, s.keep.max_tokens, s.keep.max_sequences};
}

Place TrainArenas::place_of(const Arena& arena, MemoryMode mode) const {
  const bool away = &arena == &master || &arena == &moments || &arena == &teacher_embedding;
  return mode == MemoryMode::host && away ? Place::host : Place::device;
}

TrainTensors make_train_tensors(TrainArenas& arenas, const Backend& be, const Config& c,
                                const ParamGroups& g, const TrainSettings& s, bool global_scales) {
  TrainTensors t;
  Arena& packed = arenas.nvfp4;
  // Norms are read by every pass; masters that are away must not be.
  const bool away = s.memory == MemoryMode::host;
  if (away && (s.recipe != Recipe::nvfp4 || s.head() != Recipe::nvfp4)) {
    throw_internal("memory mode host needs an NVFP4 forward: a dense one reads the masters");
  }
  t.master =
      make_weights(arenas.master, away ? packed : arenas.master, be, c, master_layout(c, g, s));
  t.forward = t.master;
  const bool remake = s.memory == MemoryMode::remake;
  const auto row_scale = [&](LinearWeight& w, int64_t rows) {
    if (global_scales) w.row_scale = packed.take(DType::f32, {rows});
  };
  if (s.recipe == Recipe::nvfp4) {
    // Linear layers only. What is gathered comes while the block before is computed with.
    BlockWeights shared[2];
    const bool gathers = s.memory == MemoryMode::gathered;
    for (int64_t l = 0; l < c.L; ++l) {
      BlockWeights& block = t.forward.block[size_t(l)];
      for (const auto& m : block.linears()) {
        LinearWeight &to = block.*m.at, &common = shared[gathers ? l % 2 : 0].*m.at;
        // Made on demand only where there is a master to make it from.
        const bool shares = (remake && to.dense) || is_gathered(g, s, m.slot, l);
        to = shares && common.is_packed() ? common : packed_like(packed, be, to, to.out);
        if (shares) common = to;
        row_scale(to, to.out);
      }
    }
  }
  if (s.head() == Recipe::nvfp4) {
    const int64_t piece = vocabulary_piece(c, s, s.max_outputs);
    const LinearWeight& like = t.master.head;
    if (remake && like.dense) {
      t.head_piece = packed_like(packed, be, like, piece);
      t.forward.head = {};
      t.forward.head.out = c.V;
      t.forward.head.in = c.C;
      row_scale(t.forward.head, c.V);
    } else {
      t.forward.head = packed_like(packed, be, like, c.V);
      row_scale(t.forward.head, c.V);
    }
  }
  t.teacher = make_teacher(arenas, be, c, g, s, t);
  const bool sharded = over_ranks(s.memory);
  for (size_t i = 0; i < g.table.size(); ++i) {
    Moments m;
    m.format = format_of(g.table[i], s);
    if (g.trained[i] && s.updates && !sharded) {
      m = make_moments(arenas.moments, m.format, g.table[i].numel());
    }
    t.moments.push_back(m);
  }
  if (sharded) make_shares(arenas, c, g, s, t);
  GradLayout layout;
  layout.matrix = s.grad;
  layout.norm = s.stat;
  layout.released = s.memory != MemoryMode::resident;
  // Beside the backward of the next layer: an update, or what passes between ranks.
  layout.alternate = away || sharded;
  if (sharded) layout.embed_rows = s.max_tokens;
  const bool rows_apart = sharded && c.tied && !frozen_slot(g, ParamSlot::embed, -1);
  if (rows_apart) t.embed_rows = arenas.gradients.take(s.grad, {s.max_tokens, c.C});
  t.grads = make_grads(arenas.gradients, c, g.table, g.trained, layout);
  if (sharded && !rows_apart) t.embed_rows = t.grads.embed;
  int64_t sums = int64_t(g.table.size());
  for (const OwnedPart& own : t.owned) sums += own.of.count / kShardChunk + 1;
  t.squares = packed.take(DType::f64, {sums});
  if (!layout.released) {
    int64_t runs = 0;
    for (const BlockGrads& b : t.grads.block) {
      for (const auto& m : b.linears()) runs += int64_t((b.*m.at).runs.size());
    }
    t.square_parts = arenas.gradients.take(DType::f64, {runs, kSquareParts});
  }
  return t;
}

int64_t vocabulary_piece(const Config& c, const TrainSettings& s, int64_t outputs) {
  const int64_t bytes_per_row =
      std::max<int64_t>(1, outputs) *
          int64_t(dtype_bytes(s.stat) + (s.compute == s.stat ? 0 : dtype_bytes(s.compute))) +
      s.keep.max_tokens * int64_t(dtype_bytes(s.stat));  // the teacher's
  const int64_t bytes =
      s.logits_bytes.value_or(std::max(kLogitsBytes, kLogitsColumns * bytes_per_row));
  const int64_t fit = bytes / bytes_per_row / kRowPanel * kRowPanel;
  return fit >= c.V ? c.V : std::max(kRowPanel, fit);
}

StepTensors make_step_tensors(Arena& a, const Config& c, const TrainSettings& s,
                              const StepShape& shape) {
  const int64_t n = shape.tokens, r = shape.outputs;
  StepTensors t;
  t.batch.ids = a.take(DType::i32, {n});
  t.batch.positions = a.take(DType::i32, {n});
  t.batch.slots = a.take(DType::i32, {n});
  t.batch.order = a.take(DType::i32, {n});
  t.batch.sequences = a.take(DType::i32, {shape.sequences, 4});
  t.batch.out_rows = a.take(DType::i32, {r});
  t.loss.targets = a.take(DType::i32, {r});
  if (over_ranks(s.memory)) t.embed_rows_of = a.take(DType::i32, {n});
  if (shape.kept_tokens > 0) t.teacher = make_teacher_tensors(a, c, s, shape, t.batch);
  const Keep keep = s.recompute == Recompute::none  ? Keep::all
                    : s.recompute == Recompute::mlp ? Keep::attention
                                                    : Keep::inputs;
  const ActsShape acts{n, r, s.compute, s.stat, keep};
  t.acts = make_acts(a, c, acts);
  t.back = make_back_acts(a, c, acts);
  t.loss.loss = a.take(s.stat, {r});
  t.loss.d_out = a.take(s.stat, {r, c.C});
  if (s.loss == LossKind::ce) {
    // Sized for the largest batch, so that a smaller one is cut the same way.
    const int64_t piece = vocabulary_piece(c, s, s.max_outputs);
    t.loss.stats = a.take(s.stat, {r, 3});
    t.loss.logits = a.take(s.stat, {r, piece});
    t.loss.dlogits = s.compute == s.stat ? t.loss.logits : a.take(s.compute, {r, piece});
    if (shape.kept_tokens > 0) {
      t.loss.teacher_stats = a.take(s.stat, {shape.kept_tokens, 3});
      t.loss.teacher_logits = a.take(s.stat, {shape.kept_tokens, piece});
    }
  }
  return t;
}

std::vector<ArenaBytes> plan_arenas(const Backend& be, const Config& c, const ParamGroups& g,
                                    const TrainSettings& s, bool global_scales) {
  TrainArenas arenas;
  make_train_tensors(arenas, be, c, g, s, global_scales);
  make_step_tensors(arenas.step, c, s, largest_step(s));
  std::vector<ArenaBytes> bytes;
  for (const Arena* a : arenas.all()) {
    bytes.push_back({a->name(), a->peak(), arenas.place_of(*a, s.memory)});
  }
  return bytes;
}

}  // namespace nibble
