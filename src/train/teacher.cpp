// SPDX-License-Identifier: MIT
#include "train/teacher.h"

namespace nibble {
namespace {

// Its start is what it was, without a copy.
bool embed_is_frozen(const ParamGroups& g) { return frozen_slot(g, ParamSlot::embed, -1); }

Tensor vector_like(Arena& a, Tensor t) { return t ? a.take(t.dtype, {t.dim(0)}) : t; }

LinearWeight linear_like(Arena& a, const Backend& be, const LinearWeight& w) {
  if (w.dense) {
    LinearWeight copy = w;
    copy.dense = a.take(w.dense.dtype, {w.out, w.in});
    return copy;
  }
  LinearWeight copy = packed_like(a, be, w, w.out);
  copy.row_scale = w.row_scale;  // global scales are never trained
  return copy;
}

Weights start_of(TrainArenas& arenas, const Backend& be, const Config& c, const ParamGroups& g,
                 const Weights& forward) {
  Arena& a = arenas.teacher;
  Weights w = forward;
  if (!embed_is_frozen(g)) {
    w.embed = arenas.teacher_embedding.take(w.embed.dtype, {c.V, c.C});
  }
  for (int64_t l = 0; l < c.L; ++l) {
    BlockWeights& b = w.block[size_t(l)];
    for (const auto& m : b.vectors()) {
      if (!frozen_slot(g, m.slot, l)) b.*m.at = vector_like(a, b.*m.at);
    }
    for (const auto& m : b.linears()) {
      if (!frozen_slot(g, m.slot, l)) b.*m.at = linear_like(a, be, b.*m.at);
    }
  }
  if (!frozen_slot(g, ParamSlot::final_norm, -1)) w.final_norm = vector_like(a, w.final_norm);
  const bool made_on_demand = !w.head.dense && !w.head.packed;
  if (c.tied && w.head.dense) {
    w.head.dense = w.embed;
  } else if (made_on_demand ||
             !(c.tied ? embed_is_frozen(g) : frozen_slot(g, ParamSlot::head, -1))) {
    w.head = linear_like(a, be, w.head);
  }
  return w;
}

}  // namespace

Weights make_teacher(TrainArenas& arenas, const Backend& be, const Config& c, const ParamGroups& g,
                     const TrainSettings& s, const TrainTensors& t) {
  if (!s.keep.used()) return {};
  if (s.keep.teacher) {
    return make_weights(arenas.teacher, be, s.keep.teacher->config, s.keep.teacher->layout);
  }
  return start_of(arenas, be, c, g, t.forward);
}

void fill_own_teacher(Backend& be, const TrainTensors& t, const ParamGroups& g,
                      const TrainSettings& s) {
  const auto copy = [&](Tensor to, Tensor from) {
    if (to && to.data != from.data) be.copy(to, from);
  };
  const bool remake = s.memory == MemoryMode::remake;
  const auto linear = [&](const LinearWeight& to, const LinearWeight& from,
                          const LinearWeight& master) {
    if (to.is_packed() && remake && master.dense) {
      be.quantize_rows(to, 0, master.dense, s.rule);
    } else {
      copy(to.packed, from.packed), copy(to.dense, from.dense);
    }
  };
  copy(t.teacher.embed, t.forward.embed);
  for (size_t l = 0; l < t.teacher.block.size(); ++l) {
    const BlockWeights &to = t.teacher.block[l], &from = t.forward.block[l];
    for (const auto& m : to.vectors()) copy(to.*m.at, from.*m.at);
    for (const auto& m : to.linears()) {
      if (is_gathered(g, s, m.slot, int64_t(l))) continue;  // read with the weights
      linear(to.*m.at, from.*m.at, t.master.block[l].*m.at);
    }
  }
  copy(t.teacher.final_norm, t.forward.final_norm);
  // A dense head that is the embedding has been copied with it.
  if (!t.teacher.head.dense || t.teacher.head.dense.data != t.teacher.embed.data) {
    linear(t.teacher.head, t.forward.head, t.master.head);
  }
  be.sync();
}

TeacherTensors make_teacher_tensors(Arena& a, const Config& own, const TrainSettings& s,
                                    const StepShape& shape, const Batch& batch) {
  const Config& c = s.keep.teacher ? s.keep.teacher->config : own;
  const int64_t kept = shape.kept_tokens, first = shape.tokens - kept;
  TeacherTensors t;
  t.batch.ids = batch.ids.slice(first, kept);
  t.batch.positions = batch.positions.slice(first, kept);
  // A row's slot is its number, counted from 0 here as there; and every row is an output.
  t.batch.slots = t.batch.out_rows = batch.slots.slice(0, kept);
  t.batch.sequences = a.take(DType::i32, {shape.kept_sequences, 4});
  const Tensor n_out = a.take(s.compute, {kept, c.C});
  const size_t mark = a.mark();
  t.acts = make_acts(a, c, {kept, kept, s.compute, s.stat, Keep::none, false});
  t.acts.n_out = n_out;
  a.release(mark);
  return t;
}

}  // namespace nibble
