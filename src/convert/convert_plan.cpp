// SPDX-License-Identifier: MIT
#include "convert/convert_plan.h"

#include <algorithm>
#include <map>
#include <regex>

#include "convert/gguf_plan.h"
#include "convert/nvfp4_groups.h"
#include "convert/raw_cast.h"
#include "convert/tied_head.h"
#include "core/error.h"
#include "core/progress.h"
#include "formats/gguf/block_types.h"
#include "model/params.h"
#include "quant/scale_shift.h"

namespace nibble {
namespace {

using Kind = ConvertJob::Kind;

// Decides by name which matrices become NVFP4.
class Selector {
 public:
  explicit Selector(const ConvertSettings& s) : settings_(s) {
    if (s.quantize.empty()) return;
    try {
      regex_ = std::regex(s.quantize);
    } catch (const std::regex_error& e) {
      throw_usage("--quantize '{}' is not a regular expression: {}", s.quantize, e.what());
    }
  }
  bool names(const std::string& name) const {
    return settings_.quantize.empty() ? is_linear_name(name) : std::regex_search(name, regex_);
  }
  bool selects(const std::string& name, const LogicalTensor& t) const {
    if (settings_.packing != Packing::nvfp4 || t.packed()) return false;
    if (t.shape.size() != 2) return false;
    // Other programs take the head dense, unless it is asked for by name.
    const bool foreign = settings_.names != Nvfp4Names::nibble;
    if (foreign && name == kHeadName && settings_.quantize.empty()) return false;
    const bool by_name = names(name);
    if (by_name && !castable(t.raw->dtype)) {
      throw_format("tensor '{}' is {}: only f64, f32, f16 and bf16 can be quantised to NVFP4", name,
                   dtype_name(t.raw->dtype));
    }
    if (by_name && t.cols % kNvfp4Block != 0) {
      throw_format("tensor '{}' has {} columns: NVFP4 needs a multiple of {}", name, t.cols,
                   kNvfp4Block);
    }
    return by_name;
  }

 private:
  const ConvertSettings& settings_;
  std::regex regex_;
};

class Planner {
 public:
  Planner(const WeightIndex& index, const Config* config, const ConvertSettings& settings)
      : source_(index.source()),
        settings_(settings),
        selector_(settings),
        gguf_(index, config, settings) {}

  ConvertJob job_for(const LogicalTensor& t, const std::string& name) const {
    if (settings_.container == Container::gguf) {
      return gguf_.job_for(t, name, t.shape.size() == 2 && selector_.names(name));
    }
    ConvertJob job;
    job.name = name;
    job.from = &t;
    const bool foreign = settings_.names != Nvfp4Names::nibble;
    if (t.packed()) {
      // Other programs take the head dense.
      const bool expand = settings_.packing == Packing::none || (foreign && name == kHeadName);
      job.kind = expand ? Kind::dequantise : Kind::copy_packed;
      job.two_level = foreign || (t.global_scale && !folds(t));
      if (!expand && !foreign && !job.two_level) job.global = 1;
      // Single-level values have six significant bits between 2^-10 and 2688: exact in both.
      const DType exact = settings_.container == Container::dat ? DType::f16 : DType::bf16;
      job.dtype = settings_.dtype.value_or(has_six_bits(t) ? exact : DType::f32);
    } else if (selector_.selects(name, t)) {
      job.kind = Kind::quantise;
      job.two_level = foreign || settings_.levels == ScaleLevels::two;
    } else {
      job.dtype = raw_dtype(*t.raw);
      job.kind = job.dtype == t.raw->dtype ? Kind::copy : Kind::cast;
    }
    return job;
  }

  const GgufPlan& gguf() const { return gguf_; }
  // Whether the expanded values are exact in the type that is usual for the container.
  bool has_six_bits(const LogicalTensor& t) const {
    if (!t.global_scale) return true;
    if (settings_.container == Container::dat) return folds(t);  // fp16 has an end, too
    return power_of_two(read_global_scale(source_, t)).has_value();
  }
  // What other programs wrote with a power of two as its global scale goes back to one level, as
  // nibble has it, where that changes no value.
  bool folds(const LogicalTensor& t) const {
    return t.names != Nvfp4Names::nibble && can_fold(source_, t);
  }
  std::vector<TensorInfo> entries_of(const ConvertJob& job) const {
    if (settings_.container == Container::gguf) return gguf_.entries_of(job);
    const LogicalTensor& t = *job.from;
    const auto entry = [](std::string name, DType dtype, std::vector<int64_t> shape, int code) {
      TensorInfo info;
      info.name = std::move(name);
      info.dtype = dtype;
      info.shape = std::move(shape);
      info.dat_code = code;
      return info;
    };
    if (job.kind == Kind::copy) return {entry(job.name, job.dtype, t.shape, t.raw->dat_code)};
    if (job.kind == Kind::cast || job.kind == Kind::dequantise) {
      return {entry(job.name, job.dtype, t.shape, -1)};
    }
    const int code = t.packed() ? t.codes->dat_code : -1;
    const Nvfp4Form& form = nvfp4_form(settings_.names);
    const std::string layer =
        job.name.ends_with(".weight") ? job.name.substr(0, job.name.size() - 7) : job.name;
    const auto part = [&](std::string_view suffix, DType dtype, std::vector<int64_t> shape,
                          int dat_code = -1) {
      // A matrix of another name than a weight's: its parts are called by the whole of it, where
      // the form's names have a part for the weight.
      const size_t rest = suffix.find('.', 1);
      if (layer == job.name && rest != suffix.npos) suffix.remove_prefix(rest);
      return entry(layer + std::string(suffix), dtype, std::move(shape), dat_code);
    };
    const std::vector<int64_t> one = form.scalar ? std::vector<int64_t>() : std::vector<int64_t>{1};
    std::vector<TensorInfo> e = {part(form.codes, DType::u8, {t.rows, t.cols / 2}, code),
                                 part(form.scales, DType::f8_e4m3, {t.rows, t.cols / kNvfp4Block})};
    if (job.two_level) e.push_back(part(form.global, DType::f32, one));
    if (job.input_scale > 0) e.push_back(part(form.input, DType::f32, one));
    return e;
  }

 private:
  DType raw_dtype(const TensorInfo& raw) const {
    if (!castable(raw.dtype)) return raw.dtype;
    if (settings_.dtype) return *settings_.dtype;
    // Older readers of a .dat know fp16 only; what a .dat holds already stays as it is.
    const bool new_dat = settings_.container == Container::dat && source_.format() != "dat";
    if (settings_.keep_f32_vectors && raw.dtype == DType::f32 && raw.shape.size() == 1) {
      return DType::f32;
    }
    return new_dat ? DType::f16 : raw.dtype;
  }

  const TensorSource& source_;
  const ConvertSettings& settings_;
  Selector selector_;
  GgufPlan gguf_;
};

std::vector<const LogicalTensor*> ordered(const WeightIndex& index, const Config* config) {
  std::vector<const LogicalTensor*> tensors;
  for (const LogicalTensor& t : index.tensors()) tensors.push_back(&t);
  if (!config || index.source().format() == "dat") return tensors;
  std::map<std::string, size_t> rank;
  for (const ParamSpec& p : parameter_table(*config)) rank.emplace(p.name, rank.size());
  const auto place = [&](const LogicalTensor* t) {
    const auto it = rank.find(t->name);
    return it == rank.end() ? rank.size() : it->second;  // strangers go last
  };
  std::ranges::stable_sort(tensors, {}, place);
  return tensors;
}

// Makes or drops the job of a tied head, as the output wants it.
void settle_head(const WeightIndex& index, const Config& config, const ConvertSettings& settings,
                 const Planner& planner, ThreadPool& pool, std::vector<ConvertJob>& jobs,
                 ConvertSummary& summary) {
  const LogicalTensor* embed = index.find(kEmbedName);
  const LogicalTensor* head = index.find(kHeadName);
  if (!embed) return;  // some tensors, not a model
  if (!head && !config.tied) {
    throw_format("{}: there is no {}, and config.json does not say that it is tied",
                 index.source().describe(), kHeadName);
  }
  if (!config.tied) return;
  if (!head) {
    if (settings.container != Container::dat) return;
    ConvertJob made = planner.job_for(*embed, std::string(kHeadName));
    const auto stored = std::ranges::find(jobs, kEmbedName, &ConvertJob::name);
    if (made.kind == ConvertJob::Kind::quantise) made.embed_dtype = stored->dtype;
    jobs.push_back(std::move(made));
    summary.head_made = true;
    return;
  }
  if (settings.container == Container::dat || settings.container == Container::safetensors) return;
  const HeadCheck check = check_head(index, pool);
  if (check.relation != HeadCheck::Relation::tied) {
    summary.untied = true;
    const std::string what =
        check.relation == HeadCheck::Relation::rounded
            ? "is the embedding at another precision"
            : fmt::format("is not the embedding ({:.2f} % of it agrees)", check.share * 100);
    const bool gguf = settings.container == Container::gguf;
    summary.notes.push_back(
        fmt::format("{} {}: it is kept{}", kHeadName, what,
                    gguf ? "" : ", and config.json of the output says tie_word_embeddings false"));
    return;
  }
  const auto job = std::ranges::find(jobs, kHeadName, &ConvertJob::name);
  // A packed head stays: dropping it would lose its scales.
  if (job->kind == Kind::quantise || job->kind == Kind::copy_packed || job->kind == Kind::join) {
    return;
  }
  jobs.erase(job);
  summary.head_dropped = true;
  summary.notes.push_back(fmt::format("{} is the embedding ({}): a tied model stores it once",
                                      kHeadName, head->packed() ? "nearest codes" : "equal"));
}

// Layers that other programs run as one have one scale of their inputs, too.
void set_input_scales(const TensorSource& source, const ConvertSettings& settings,
                      std::vector<ConvertJob>& jobs) {
  std::map<std::string, float> shared;
  const auto is_packed = [](const ConvertJob& j) {
    return j.kind == Kind::copy_packed || j.kind == Kind::quantise;
  };
  for (ConvertJob& job : jobs) {
    if (!is_packed(job)) continue;
    const auto measured = settings.input_maxima.find(job.name);
    const float own = measured != settings.input_maxima.end() ? two_level_scale(measured->second)
                                                              : read_input_scale(source, *job.from);
    float& of_group = shared[fused_name(job.name)];
    of_group = std::max(of_group, own);
  }
  // All layers, or none: config.json says it of all.
  if (std::ranges::any_of(shared, [](const auto& s) { return !(s.second > 0); })) return;
  for (ConvertJob& job : jobs) {
    if (is_packed(job)) job.input_scale = shared[fused_name(job.name)];
  }
}

// Which layers stay dense, and whether the inputs of all others have their scales.
void note_modules(const std::vector<ConvertJob>& jobs, ConvertSummary& summary) {
  constexpr std::string_view kWeight = ".weight";
  summary.dense_modules = {"lm_head"};  // a tied one, too, which has no tensor
  bool any = false, all = true;
  for (const ConvertJob& job : jobs) {
    if (job.kind == Kind::copy_packed || job.kind == Kind::quantise) {
      any = true;
      all = all && job.input_scale > 0;
    } else if (is_linear_name(job.name) && job.name != kHeadName) {
      summary.dense_modules.push_back(job.name.substr(0, job.name.size() - kWeight.size()));
    }
  }
  summary.input_scales = any && all;
}

}  // namespace

bool is_linear_name(const std::string& name) {
  const auto has = [&](std::string_view part) { return name.find(part) != std::string::npos; };
  if (has("embed_tokens") || has("norm") || name.ends_with(".bias")) return false;
  return has("lm_head") || std::ranges::any_of(linear_layer_names(), has);
}

ConvertPlan plan_conversion(const WeightIndex& index, const Config* config,
                            const ConvertSettings& settings, ThreadPool& pool,
                            ConvertSummary& summary) {
  if (settings.levels == ScaleLevels::two && settings.rule == ScaleRule::torchao) {
    throw_usage("--scale-rule torchao is single-level: --scales two-level does not go with it");
  }
  if (settings.container == Container::gguf && !config) {
    throw_format("{}: a GGUF needs the model's config.json, give it with --config",
                 index.source().describe());
  }
  if (block_type_of(settings.packing) && settings.container != Container::gguf) {
    throw_usage("--quant {} is a type of a GGUF: name the output with .gguf",
                block_type_of(settings.packing)->name);
  }
  const Planner planner(index, config, settings);
  ConvertPlan plan;
  bool any_selected = false;
  {
    // Whether a global scale can be moved says the whole matrix.
    Progress progress("planning", index.tensors().size(), "tensors");
    for (const LogicalTensor* t : ordered(index, config)) {
      plan.jobs.push_back(planner.job_for(*t, t->name));
      const Kind kind = plan.jobs.back().kind;
      any_selected = any_selected || kind == Kind::quantise || kind == Kind::encode ||
                     (kind == Kind::join && !t->packed());
      progress.advance(1);
    }
  }
  if (!settings.quantize.empty() && !any_selected) {
    throw_usage("--quantize '{}' matches no unquantised matrix of the input", settings.quantize);
  }
  if (config) settle_head(index, *config, settings, planner, pool, plan.jobs, summary);
  if (settings.names != Nvfp4Names::nibble) {
    share_global_scales(index.source(), plan.jobs, pool, summary);
    set_input_scales(index.source(), settings, plan.jobs);
    note_modules(plan.jobs, summary);
  }
  if (settings.container == Container::gguf) planner.gguf().complete(*config, plan, summary);
  for (const ConvertJob& job : plan.jobs) {
    for (TensorInfo& e : planner.entries_of(job)) plan.entries.push_back(std::move(e));
  }
  if (settings.container == Container::gguf) {
    plan.metadata = settings.metadata;
    add_gguf_file_type(plan.entries, plan.metadata);
  }
  return plan;
}

}  // namespace nibble
