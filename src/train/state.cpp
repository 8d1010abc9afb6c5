// SPDX-License-Identifier: MIT
#include "train/state.h"

#include <algorithm>

#include "convert/tied_head.h"
#include "core/log.h"
#include "core/memory_info.h"
#include "core/progress.h"
#include "model/load.h"
#include "model/param_reader.h"
#include "train/ranks/packed_blocks.h"
#include "train/teacher.h"

namespace nibble {
namespace {

// Moves a measured arena onto memory of its size.
void allocate(Backend& be, Arena& arena, Place place) {
  const std::string name = arena.name();
  const size_t bytes = arena.peak();
  arena = Arena(name, be.allocate(bytes, name, place));
}

bool is_tied_head(const Config& c, const ParamSpec& p) {
  return p.slot == ParamSlot::head && c.tied;
}

}  // namespace

Config training_config(const Config& config, const TensorSource& source, bool untie) {
  Config c = config;
  if (!c.tied) return c;
  const WeightIndex index(source);
  ThreadPool pool(default_thread_count());
  if (check_head(index, pool).relation == HeadCheck::Relation::different) {
    log_info("the stored head is not the embedding: it was trained apart and is trained apart now");
    c.tied = false;
  }
  if (untie) c.tied = false;
  return c;
}

bool has_global_scales(const TensorSource& source) {
  const WeightIndex index(source);
  for (const LogicalTensor& t : index.tensors()) {
    if (t.global_scale) return true;
  }
  return false;
}

TrainState::TrainState(Backend& backend, const Config& config, const TensorSource& source,
                       const TrainSettings& settings, const Config& trained,
                       const TensorSource* teacher)
    : be_(backend),
      config_(trained),
      settings_(settings),
      groups_(make_param_groups(config_, settings)) {
  // A file without a head still has one to read when the two are trained apart: the embedding.
  Config as_stored = config_;
  as_stored.tied = config.tied;
  check_parameters(WeightIndex(source), as_stored, groups_.table);
  const bool global = has_global_scales(source);
  {
    TrainArenas measured;
    make_train_tensors(measured, be_, config_, groups_, settings_, global);
    make_step_tensors(measured.step, config_, settings_, largest_step(settings_));
    const auto from = measured.every(), to = arenas_.every();
    std::string report;
    for (const Arena* a : measured.all())
      report += fmt::format("\n  {:<18}{:>12}", a->name(), format_bytes(a->peak()));
    for (size_t i = 0; i < to.size(); ++i) {
      if (from[i]->peak() == 0) continue;  // nothing is kept, or nothing is trained
      try {
        allocate(be_, *from[i], measured.place_of(*from[i], settings_.memory));
      } catch (const DeviceError& e) {
        throw_device(
            "{}\nwanted in all, with memory mode {}:{}\nnibble plan shows which modes fit what "
            "there is now",
            e.what(), memory_mode_name(settings_.memory), report);
      }
      *to[i] = std::move(*from[i]);
    }
  }
  tensors_ = make_train_tensors(arenas_, be_, config_, groups_, settings_, global);
  read(source);
  if (!settings_.keep.used()) return;
  if (settings_.keep.teacher) {
    const KeepSettings::Teacher& t = *settings_.keep.teacher;
    if (!teacher) throw_internal("a teacher without its weights");
    LoadOptions how;
    how.scale_rule = settings_.rule;
    read_weights(be_, tensors_.teacher, t.config, *teacher, t.layout, how);
  } else {
    fill_own_teacher(be_, tensors_, groups_, settings_);
  }
}

Tensor TrainState::master_of(const ParamSpec& p) const {
  const auto slot = slot_of(tensors_.master, p);
  if (slot.tensor) return rows_of_param(*slot.tensor, p);
  if (!slot.linear->dense) return {};
  return slot.linear->dense.slice(p.row_offset, p.shape[0]);
}

const LinearWeight* TrainState::packed_of(const ParamSpec& p) const {
  if (!p.is_linear()) return nullptr;
  if (settings_.memory == MemoryMode::remake && master_of(p)) return nullptr;
  if (is_gathered(groups_, settings_, p)) return nullptr;
  const LinearWeight* w = slot_of(tensors_.forward, p).linear;
  return w->is_packed() ? w : nullptr;
}

const LinearWeight* TrainState::updated_packed_of(const ParamSpec& p) const {
  if (is_gathered(groups_, settings_, p)) return slot_of(tensors_.forward, p).linear;
  return packed_of(p);
}

void TrainState::read_packed(const ParamSpec& p, int64_t row, int64_t rows,
                             std::span<uint8_t> codes, std::span<uint8_t> scales) const {
  settle();
  if (const LinearWeight* w = packed_of(p)) {
    return be_.unpack_rows(*w, p.row_offset + row, rows, codes, scales);
  }
  const int64_t width = p.shape[1];
  std::vector<std::byte> blocks(size_t(packed_block_bytes(rows * width)));
  read_bytes(StateBytes::nvfp4, index_of(p), uint64_t(packed_block_bytes(row * width)), blocks);
  blocks_to(blocks.data(), codes, scales);
}

void TrainState::write_packed(const ParamSpec& p, int64_t row, int64_t rows,
                              std::span<const uint8_t> codes, std::span<const uint8_t> scales) {
  if (const LinearWeight* w = packed_of(p)) {
    return be_.pack_rows(*w, p.row_offset + row, rows, codes, scales);
  }
  const int64_t first = row * p.shape[1], last = first + rows * p.shape[1];
  std::vector<std::byte> blocks(size_t(packed_block_bytes(last - first)));
  blocks_from(codes, scales, blocks.data());
  for (const OwnedPart* own : owned(index_of(p))) {
    const int64_t begin = std::max(first, own->of.begin);
    const int64_t end = std::min(last, own->of.begin + own->of.count);
    if (begin >= end) continue;
    be_.upload(own->nvfp4.slice(packed_block_bytes(begin - own->of.begin),
                                packed_block_bytes(end - begin)),
               blocks.data() + packed_block_bytes(begin - first));
  }
}

void TrainState::lay_out_own(const ParamSpec& p) {
  for (const OwnedPart* own : owned(index_of(p))) {
    std::vector<std::byte> blocks(own->nvfp4.bytes());
    be_.download(blocks.data(), own->nvfp4);
    write_blocks(be_, *updated_packed_of(p), p.row_offset, own->of.begin, own->of.count,
                 blocks.data());
  }
}

void TrainState::take_back_own(const ParamSpec& p) {
  be_.sync();
  for (const OwnedPart* own : owned(index_of(p))) {
    std::vector<std::byte> blocks(own->nvfp4.bytes());
    read_blocks(be_, *updated_packed_of(p), p.row_offset, own->of.begin, own->of.count,
                blocks.data());
    be_.upload(own->nvfp4, blocks.data());
  }
}

// The run's own start, while it is where the forward will read it.
void TrainState::read_own_teacher(const ParamSpec& p) {
  const LinearWeight* const to = slot_of(tensors_.teacher, p).linear;
  std::vector<uint8_t> codes(size_t(p.numel() / 2)), scales(size_t(p.numel() / kNvfp4Block));
  be_.unpack_rows(*updated_packed_of(p), p.row_offset, p.shape[0], codes, scales);
  be_.pack_rows(*to, p.row_offset, p.shape[0], codes, scales);
}

void TrainState::requantize(const ParamSpec& p) {
  const LinearWeight* w = packed_of(p);
  if (w) be_.quantize_rows(*w, p.row_offset, master_of(p), settings_.rule);
}

void TrainState::read(const TensorSource& source) {
  const WeightIndex index(source);
  ParameterReader reader(be_, index, settings_.rule);
  Config stored = config_;
  stored.tied = true;  // a missing head is read from the embedding, also when trained apart
  uint64_t total = 0;
  for (const ParamSpec& p : groups_.table) total += source_of(index, stored, p)->payload_bytes();
  Progress progress("loading", total);
  for (const ParamSpec& p : groups_.table) {
    const LogicalTensor& t = *source_of(index, stored, p);
    const SlotRef slot = slot_of(tensors_.master, p);
    if (slot.tensor) {
      reader.read_tensor(rows_of_param(*slot.tensor, p), t);
    } else if (slot.linear->dense && !is_tied_head(config_, p)) {
      reader.read_linear(*slot.linear, p, t);
    }
    if (p.is_linear()) {
      const LinearWeight* forward = slot_of(tensors_.forward, p).linear;
      if (forward->row_scale) {
        const std::vector<float> g(size_t(t.rows),
                                   t.packed() ? read_global_scale(source, t) : 1.0f);
        be_.upload(forward->row_scale.slice(p.row_offset, t.rows), g.data());
      }
      if (const LinearWeight* w = updated_packed_of(p)) {
        const bool in_parts = shared_out(StateBytes::master, p);
        if (in_parts) read_shares(reader, index_of(p), t);
        if (t.packed() || (!master_of(p) && !in_parts)) {
          reader.read_linear(*w, p, t);
        } else if (!in_parts) {
          requantize(p);
        }
        if (is_gathered(groups_, settings_, p)) {
          if (settings_.keep.used() && !settings_.keep.teacher) read_own_teacher(p);
          take_back_own(p);
        }
      }
    }
    progress.advance(t.payload_bytes());
  }
  be_.sync();
}

// A master that is here in parts only, some rows at a time; NVFP4 is made of it where the file has
// none, as it is made of a whole one.
void TrainState::read_shares(ParameterReader& reader, size_t param, const LogicalTensor& t) {
  const ParamSpec& p = groups_.table[param];
  const DType type = master_type_of(groups_, settings_, p);
  const int64_t width = p.shape[1], size = int64_t(dtype_bytes(type));
  const int64_t step = int64_t(tensors_.heard.bytes()) / (width * size);
  if (step < 1) throw_internal("a row of {} does not fit into an exchange", p.name);
  for (int64_t row = 0; row < p.shape[0]; row += step) {
    const int64_t rows = std::min(step, p.shape[0] - row);
    const Tensor some = make_tensor(tensors_.heard.data, type, {rows, width});
    reader.read_rows(some, t, row);
    const Tensor flat = some.view({rows * width});
    const int64_t first = row * width, last = first + rows * width;
    for (const OwnedPart* own : owned(param)) {
      const int64_t begin = std::max(first, own->of.begin);
      const int64_t end = std::min(last, own->of.begin + own->of.count);
      if (begin >= end) continue;
      be_.copy(own->master.slice(begin - own->of.begin, end - begin),
               flat.slice(begin - first, end - begin));
    }
    if (!t.packed())
      be_.quantize_rows(*updated_packed_of(p), p.row_offset + row, some, settings_.rule);
    be_.sync();  // the rows are written over
  }
}

bool TrainState::shared_out(StateBytes what, const ParamSpec& p) const {
  if (!over_ranks(settings_.memory)) return false;
  if (what == StateBytes::nvfp4) return is_gathered(groups_, settings_, p);
  if (what != StateBytes::master) return true;
  return p.is_linear() && !master_of(p) && !frozen_slot(groups_, p.slot, p.layer);
}

Tensor TrainState::tensor_of(StateBytes what, size_t param) const {
  const Moments& m = tensors_.moments[param];
  return what == StateBytes::master ? master_of(groups_.table[param])
         : what == StateBytes::m    ? m.m
                                    : m.v;
}

std::vector<const OwnedPart*> TrainState::owned(size_t param) const {
  std::vector<const OwnedPart*> parts;
  for (const OwnedPart& own : tensors_.owned) {
    if (own.of.param == param) parts.push_back(&own);
  }
  return parts;
}

void TrainState::read_bytes(StateBytes what, size_t param, uint64_t at,
                            std::span<std::byte> out) const {
  settle();
  const ParamSpec& p = groups_.table[param];
  if (shared_out(what, p)) {
    if (!fetch) throw_internal("nobody fetches what other ranks own of {}", p.name);
    return fetch(what, param, at, out);
  }
  const Tensor whole = tensor_of(what, param);
  const int64_t size = int64_t(dtype_bytes(whole.dtype));
  be_.download(out.data(),
               whole.view({whole.numel()}).slice(int64_t(at) / size, int64_t(out.size()) / size));
}

void TrainState::need_weights(int64_t layer) {
  if (arrive) arrive(layer);
  if (layer < 0 || layer == config_.L) return;
  if (settings_.memory != MemoryMode::remake || settings_.recipe != Recipe::nvfp4) return;
  const BlockWeights& from = tensors_.master.block[size_t(layer)];
  const BlockWeights& to = tensors_.forward.block[size_t(layer)];
  const auto make = [&](const LinearWeight& packed, const LinearWeight& master) {
    if (master.dense) be_.quantize_rows(packed, 0, master.dense, settings_.rule);
  };
  for (const auto& m : BlockWeights::linears()) make(to.*m.at, from.*m.at);
}

LinearWeight TrainState::head_rows(int64_t begin, int64_t count) {
  const LinearWeight& head = tensors_.forward.head;
  if (head.dense || head.packed) return be_.rows_of(head, begin, count);
  LinearWeight piece = be_.rows_of(tensors_.head_piece, 0, count);
  if (head.row_scale) piece.row_scale = head.row_scale.slice(begin, count);
  be_.quantize_rows(piece, 0, tensors_.master.head.dense.slice(begin, count), settings_.rule);
  return piece;
}

}  // namespace nibble
