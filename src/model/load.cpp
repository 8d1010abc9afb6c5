// SPDX-License-Identifier: MIT
#include "model/load.h"

#include <algorithm>

#include "core/memory_info.h"
#include "core/progress.h"
#include "model/param_reader.h"

namespace nibble {
namespace {

// Decides types from the file and the options.
class LayoutPlanner {
 public:
  LayoutPlanner(const WeightIndex& index, const Config& c, const std::vector<ParamSpec>& table,
                const LoadOptions& o)
      : index_(index), c_(c), table_(table), o_(o) {}

  WeightLayout plan() {
    WeightLayout layout;
    layout.embed = o_.dtype.value_or(held_type(*index_.at(kEmbedName).raw));
    layout.norm = o_.dtype.value_or(DType::f32);
    for (int64_t l = 0; l < c_.L; ++l) {
      for (const auto& m : BlockWeights::linears()) {
        layout.linear.push_back(linear(l, m.slot, o_.recipe));
      }
    }
    const auto head_recipe = o_.head_recipe ? o_.head_recipe : o_.recipe;
    layout.head = linear(-1, ParamSlot::head, head_recipe);
    layout.head_is_embed = layout.head.dense && !index_.find(kHeadName);
    return layout;
  }

 private:
  // The type a stored tensor is held in: as it is, except that backends compute in at most f32.
  DType held_type(const TensorInfo& stored) const {
    if (stored.blocks) return o_.expanded;
    return stored.dtype == DType::f64 ? DType::f32 : stored.dtype;
  }
  LinearLayout linear(int64_t layer, ParamSlot slot, std::optional<Recipe> recipe) const {
    bool all_packed = true, any_global = false;
    std::optional<DType> raw_type;
    bool mixed = false;
    for (const ParamSpec& p : table_) {
      if (p.slot != slot || p.layer != layer) continue;
      const LogicalTensor& t = *source_of(index_, c_, p);
      if (t.packed()) {
        mixed |= raw_type.has_value();
        any_global |= t.global_scale != nullptr;
        continue;
      }
      const DType type = held_type(*t.raw);
      mixed |= raw_type && *raw_type != type;
      all_packed = false;
      raw_type = type;
    }
    const bool packed = recipe ? *recipe == Recipe::nvfp4 : all_packed;
    if (packed) return {std::nullopt, any_global};
    // NVFP4 values without a global scale are exact in bf16.
    DType dense = all_packed ? (any_global ? DType::f32 : DType::bf16) : *raw_type;
    if (mixed) dense = DType::f32;
    return {o_.dtype.value_or(dense), false};
  }

  const WeightIndex& index_;
  const Config& c_;
  const std::vector<ParamSpec>& table_;
  const LoadOptions& o_;
};

WeightLayout plan_layout(const WeightIndex& index, const Config& c,
                         const std::vector<ParamSpec>& table, const LoadOptions& o) {
  require_parameters(index, c, table);
  return LayoutPlanner(index, c, table, o).plan();
}

std::string describe_layout(const WeightLayout& layout, size_t n_bytes) {
  const auto name = [](const LinearLayout& l) {
    return l.dense ? std::string(dtype_name(*l.dense)) : "nvfp4";
  };
  return fmt::format("linear layers {}, head {}{}, embedding {}, {} of weights",
                     name(layout.linear.front()), name(layout.head),
                     layout.head_is_embed ? " (the embedding itself)" : "",
                     dtype_name(layout.embed), format_bytes(n_bytes));
}

}  // namespace

bool loads_packed(const Config& c, const TensorSource& source, const LoadOptions& o) {
  const WeightIndex index(source);
  const std::vector<LinearLayout> linear = plan_layout(index, c, parameter_table(c), o).linear;
  return std::any_of(linear.begin(), linear.end(), [](const LinearLayout& l) { return !l.dense; });
}

WeightLayout weight_layout(const Config& c, const TensorSource& source, const LoadOptions& o) {
  const WeightIndex index(source);
  const auto table = parameter_table(c);
  check_parameters(index, c, table);
  return plan_layout(index, c, table, o);
}

size_t weight_bytes(const Backend& be, const Config& c, const TensorSource& source,
                    const LoadOptions& o) {
  const WeightIndex index(source);
  Arena measure("weights");
  make_weights(measure, be, c, plan_layout(index, c, parameter_table(c), o));
  return measure.peak();
}

void read_weights(Backend& be, Weights& weights, const Config& c, const TensorSource& source,
                  const WeightLayout& layout, const LoadOptions& o) {
  const WeightIndex index(source);
  ParameterReader reader(be, index, o.scale_rule, o.not_finite);
  for (const ParamSpec& p : parameter_table(c)) {
    if (p.slot == ParamSlot::head && layout.head_is_embed) continue;
    const LogicalTensor& t = *source_of(index, c, p);
    const SlotRef slot = slot_of(weights, p);
    if (slot.tensor) {
      reader.add_tensor(rows_of_param(*slot.tensor, p), t);
    } else {
      reader.add_linear(*slot.linear, p, t);
    }
  }
  Progress progress("loading", reader.planned_bytes());
  reader.run([&](uint64_t n_bytes) { progress.advance(n_bytes); });
  be.sync();
}

Model load_model(Backend& be, const Config& c, const TensorSource& source, const LoadOptions& o) {
  const WeightLayout layout = weight_layout(c, source, o);
  Arena measure("weights");
  make_weights(measure, be, c, layout);
  Model m;
  m.config = c;
  m.memory = Arena("weights", be.allocate(measure.peak(), "weights"));
  m.weights = make_weights(m.memory, be, c, layout);
  m.summary = describe_layout(layout, measure.peak());
  read_weights(be, m.weights, c, source, layout, o);
  if (c.tied && WeightIndex(source).find(kHeadName)) m.summary += "; the head is the stored one";
  return m;
}

}  // namespace nibble
