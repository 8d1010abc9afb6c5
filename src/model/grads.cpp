// SPDX-License-Identifier: MIT
#include "model/grads.h"

#include <algorithm>

#include "core/error.h"

namespace nibble {
namespace {

class GradMaker {
 public:
  GradMaker(Arena& arena, const Config& c, std::span<const ParamSpec> table,
            std::span<const uint8_t> trained, const GradLayout& layout)
      : arena_(arena), c_(c), table_(table), trained_(trained), layout_(layout) {}

  Grads make() {
    grads_.block.resize(size_t(c_.L));
    if (c_.tied) take_if([](const ParamSpec& p) { return p.slot == ParamSlot::embed; });
    take_layers();
    return std::move(grads_);
  }

 private:
  void take_layers() {
    // In the order of the backward: released gradients lie over each other.
    const size_t mark = arena_.mark(), stride = layout_.alternate ? largest_layer() : 0;
    for (int64_t phase = c_.L; phase >= -1; --phase) {
      if (layout_.released) arena_.release(mark + size_t((phase + 2) % 2) * stride);
      take_if([&](const ParamSpec& p) {
        if (p.slot == ParamSlot::embed) return phase == -1 && !c_.tied;
        return phase == (p.layer >= 0 ? p.layer : c_.L);
      });
    }
  }

  // Bytes of the gradients of what is updated together.
  size_t largest_layer() const {
    Arena measure("one layer's gradients");
    GradLayout one = layout_;
    one.alternate = false;
    GradMaker maker(measure, c_, table_, trained_, one);
    maker.grads_.block.resize(size_t(c_.L));
    maker.take_layers();
    return measure.peak();
  }

  template <class Wanted>
  void take_if(Wanted wanted) {
    for (size_t i = 0; i < table_.size(); ++i) {
      const ParamSpec& p = table_[i];
      if (!trained_[i] || !wanted(p)) continue;
      const auto ref = slot_of(grads_, p);
      if (ref.tensor) {
        if (!*ref.tensor) *ref.tensor = whole(p);
      } else {
        add_rows(*ref.linear, p, i);
      }
    }
  }

  // Of all that is stacked in the parameter's slot.
  Tensor whole(const ParamSpec& p) {
    const bool rows = layout_.embed_rows > 0 && p.slot == ParamSlot::embed && !c_.tied;
    if (rows) return arena_.take(layout_.matrix, {layout_.embed_rows, p.shape[1]});
    if (p.is_matrix()) return arena_.take(layout_.matrix, {p.shape[0], p.shape[1]});
    const std::vector<int64_t> stacked = slot_shape(c_, p.slot);
    return arena_.take(layout_.norm, {stacked.empty() ? p.shape[0] : stacked[0]});
  }

  // Joins the parameters that follow each other in a stacked weight: one product for all.
  void add_rows(LinearGrad& g, const ParamSpec& first, size_t i) {
    for (const GradRun& run : g.runs) {
      if (first.row_offset < run.row_begin + run.dw.dim(0)) return;  // part of a run already
    }
    int64_t rows = first.shape[0];
    for (size_t j = i + 1; j < table_.size(); ++j) {
      const ParamSpec& p = table_[j];
      const bool next = p.slot == first.slot && p.layer == first.layer && trained_[j] &&
                        p.row_offset == first.row_offset + rows;
      if (next) rows += p.shape[0];
    }
    g.runs.push_back({first.row_offset, arena_.take(layout_.matrix, {rows, first.shape[1]})});
  }

  Arena& arena_;
  const Config& c_;
  std::span<const ParamSpec> table_;
  std::span<const uint8_t> trained_;
  const GradLayout& layout_;
  Grads grads_;
};

bool any(const BlockGrads& b) {
  return std::ranges::any_of(b.vectors(), [&](const auto& m) { return bool(b.*m.at); }) ||
         std::ranges::any_of(b.linears(), [&](const auto& m) { return !(b.*m.at).runs.empty(); });
}

}  // namespace

void GradSquares::begin(Tensor parts) {
  parts_ = parts;
  made_.clear();
}

Tensor GradSquares::next() const {
  const int64_t row = int64_t(made_.size());
  if (!parts_ || row >= parts_.dim(0)) return {};
  return parts_.slice(row, 1).view({parts_.dim(1)});
}

void GradSquares::add(ParamSlot slot, int64_t layer, int64_t row_begin, int64_t rows) {
  const bool fresh = made_.emplace(Rows{slot, layer, row_begin}, row_begin + rows).second;
  if (!fresh) throw_internal("squares of one gradient twice: layer {}, slot {}", layer, int(slot));
}

Tensor GradSquares::made() const {
  return made_.empty() ? Tensor{} : parts_.slice(0, int64_t(made_.size()));
}

bool GradSquares::holds(const ParamSpec& p) const {
  auto after = made_.upper_bound({p.slot, p.layer, p.row_offset});
  if (after == made_.begin()) return false;
  const auto& [rows, end] = *--after;
  return rows.slot == p.slot && rows.layer == p.layer && p.row_offset < end;
}

Grads make_grads(Arena& arena, const Config& c, std::span<const ParamSpec> table,
                 std::span<const uint8_t> trained, const GradLayout& layout) {
  if (table.size() != trained.size()) throw_internal("one trained flag per parameter");
  return GradMaker(arena, c, table, trained, layout).make();
}

Tensor grad_of(const Grads& grads, const ParamSpec& p) {
  const auto ref = slot_of(grads, p);
  if (ref.tensor) return *ref.tensor ? rows_of_param(*ref.tensor, p) : Tensor{};
  for (const GradRun& run : ref.linear->runs) {
    const int64_t begin = p.row_offset - run.row_begin;
    if (begin >= 0 && begin + p.shape[0] <= run.dw.dim(0)) return run.dw.slice(begin, p.shape[0]);
  }
  return {};
}

int64_t lowest_wanted(const Grads& g) {
  if (g.embed) return -1;
  const auto first = std::find_if(g.block.begin(), g.block.end(), any);
  return first - g.block.begin();
}

}  // namespace nibble
