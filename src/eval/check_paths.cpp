// SPDX-License-Identifier: MIT
// check --paths: the residual stream of every execution path, layer by layer, against the plain
// fp32 forward over the whole sequence. With a model on a GPU that is the CPU's forward of the same
// file.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "eval/check_parts.h"
#include "inspect/compare.h"
#include "model/evaluate.h"

namespace nibble {
namespace {

// The residual stream after each layer, and the logits.
using Trace = std::vector<Recorded>;
using Run = std::function<void(Backend&)>;

struct Path {
  std::string name;
  double max_rel, min_cosine;
  Run run;
  // What it is held against, where that is not the reference.
  const Trace* against = nullptr;
};

// A run in pieces records each name several times: the rows follow each other.
Trace record(Backend& backend, const Run& run) {
  Trace seen;
  RecordingBackend recording(backend, [&](Recorded r) {
    if (r.name != "logits" && !r.name.ends_with(".out")) return;
    const auto same =
        std::find_if(seen.begin(), seen.end(), [&](const Recorded& s) { return s.name == r.name; });
    if (same == seen.end()) {
      seen.push_back(std::move(r));
      return;
    }
    same->shape[0] += r.shape[0];
    same->values.insert(same->values.end(), r.values.begin(), r.values.end());
  });
  run(recording);
  return seen;
}

// Share of positions whose likeliest token is the same.
double top1_agreement(const Recorded& a, const Recorded& b) {
  const size_t V = size_t(a.shape.back()), rows = a.values.size() / V;
  size_t same = 0;
  for (size_t r = 0; r < rows; ++r) {
    const auto best = [&](const Recorded& x) {
      const auto begin = x.values.begin() + std::ptrdiff_t(r * V);
      return std::max_element(begin, begin + std::ptrdiff_t(V)) - begin;
    };
    same += best(a) == best(b);
  }
  return rows ? double(same) / double(rows) : 1;
}

// The runs of one model on one backend.
class Runs {
 public:
  Runs(const Model& model, const std::vector<int32_t>& ids)
      : model_(model), ids_(ids), wide_(ids.begin(), ids.end()) {}

  Run forward(DType compute, Activations activations, Keep keep = Keep::none) const {
    return [=, this](Backend& be) {
      evaluate(be, model_, wide_, {}, 1, int64_t(wide_.size()),
               {compute, DType::f32, activations, keep});
    };
  }
  // As a reply is made: half of the tokens at once, the others one by one.
  Run through_cache(DType compute, DType cache, Activations activations = Activations::none) const {
    return [=, this](Backend& be) {
      EngineOptions e;
      e.context = int64_t(ids_.size());
      e.compute = compute;
      e.cache = cache;
      e.activations = activations;
      Engine engine(be, model_, e);
      const std::span<const int32_t> all(ids_);
      const size_t half = (ids_.size() + 1) / 2;
      engine.extend_all(all.first(half));
      for (size_t i = half; i < ids_.size(); ++i) engine.step(ids_[i], {}, 0);
    };
  }

 private:
  const Model& model_;
  const std::vector<int32_t>& ids_;
  std::vector<int64_t> wide_;
};

// Neither changes any arithmetic.
void add_exact_paths(std::vector<Path>& paths, const Runs& runs, const Trace* against) {
  paths.push_back({"cache", 1e-5, 0.99999, runs.through_cache(DType::f32, DType::f32), against});
  paths.push_back(
      {"training", 1e-5, 0.99999, runs.forward(DType::f32, Activations::none, Keep::all), against});
}

// Limits of lossy paths are a few times what random models of 2 to 28 layers show, and far below
// what a wrong scale or a wrong nibble order does.
std::vector<Path> cpu_paths(const CheckOptions& o, const Runs& runs, bool packed) {
  std::vector<Path> paths;
  add_exact_paths(paths, runs, nullptr);
  paths.push_back({"bf16", o.max_rel.value_or(0.05), o.min_cosine.value_or(0.999),
                   runs.forward(DType::bf16, Activations::none)});
  paths.push_back({"nvfp4", o.max_rel.value_or(0.7), o.min_cosine.value_or(0.75),
                   runs.forward(DType::f32, Activations::nvfp4)});
  paths.push_back({"fp8-cache", o.max_rel.value_or(0.2), o.min_cosine.value_or(0.97),
                   runs.through_cache(DType::f32, DType::f8_e4m3)});
  if (packed) {
    paths.push_back({"int8", o.max_rel.value_or(0.1), o.min_cosine.value_or(0.99),
                     runs.forward(DType::f32, Activations::int8)});
  }
  return paths;
}

// In fp32 a GPU adds in another order: 2e-5 of the logits of a few layers (docs/numerics.md), the
// CPU's own 5e-6 beside it, and more in proportion where there are more layers. An E4M3 value is
// off by 2^-4 of itself at most, half of that on average.
std::vector<Path> gpu_paths(const CheckOptions& o, const Runs& runs, const Config& c,
                            const Trace* gpu_fp32) {
  const double exact = 2.5e-5 * std::max(1.0, double(c.L) / 4);
  std::vector<Path> paths;
  paths.push_back({"cuda-fp32", exact, 0.99999, runs.forward(DType::f32, Activations::none)});
  add_exact_paths(paths, runs, gpu_fp32);
  const double rel = o.max_rel.value_or(0.05), cosine = o.min_cosine.value_or(0.999);
  paths.push_back({"bf16", rel, cosine, runs.forward(DType::bf16, Activations::none)});
  paths.push_back({"bf16-cache", rel, cosine, runs.through_cache(DType::bf16, DType::bf16)});
  paths.push_back({"fp8-cache", o.max_rel.value_or(0.2), o.min_cosine.value_or(0.97),
                   runs.through_cache(DType::bf16, DType::f8_e4m3)});
  paths.push_back({"nvfp4", o.max_rel.value_or(0.7), o.min_cosine.value_or(0.75),
                   runs.forward(DType::bf16, Activations::nvfp4)});
  return paths;
}

}  // namespace

void check_paths(const CheckOptions& o, const Runtime& r, const std::vector<CheckPrompt>& prompts,
                 CheckReport& report) {
  const std::vector<int32_t>& ids = prompts.front().ids;
  const bool packed = any_packed(r.model.weights), on_gpu = r.device.kind == Device::cuda;
  const Runs runs(r.model, ids);
  Trace reference, gpu_fp32;
  if (on_gpu) {
    const auto cpu = make_backend(Device::cpu, o.runtime.threads);
    const Model model = load_model(*cpu, r.model.config, *r.source, r.load);
    reference = record(*cpu, Runs(model, ids).forward(DType::f32, Activations::none));
    gpu_fp32 = record(*r.backend, runs.forward(DType::f32, Activations::none));
  } else {
    reference = record(*r.backend, runs.forward(DType::f32, Activations::none));
  }
  const std::vector<Path> paths =
      on_gpu ? gpu_paths(o, runs, r.model.config, &gpu_fp32) : cpu_paths(o, runs, packed);
  if (on_gpu) {
    report.note("[int8] not run: it is the CPU's");
  } else if (!packed) {
    report.note("[int8] not run: it needs NVFP4 weights");
  }

  nlohmann::json all = nlohmann::json::array();
  std::string first_failure;
  for (const Path& path : paths) {
    const Trace seen = record(*r.backend, path.run);
    const Trace& wanted = path.against ? *path.against : reference;
    const std::vector<Difference> differences = compare_recordings(seen, wanted);
    const Difference *over = nullptr, *worst = nullptr;
    nlohmann::json layers = nlohmann::json::array();
    for (const Difference& d : differences) {
      layers.push_back({{"name", d.name},
                        {"relative_l2", json_number(d.relative_l2)},
                        {"cosine", json_number(d.cosine)}});
      if (!worst || !(d.relative_l2 <= worst->relative_l2)) worst = &d;
      if (!over && (d.over(path.max_rel) || !(d.cosine >= path.min_cosine))) over = &d;
    }
    const double top1 = top1_agreement(seen.back(), wanted.back());
    const std::string verdict =
        over ? fmt::format(
                   "FAIL {} is the first over (relative L2 {:.3g}, cosine {:.6f}; limits "
                   "{:g}, {:g})",
                   over->name, over->relative_l2, over->cosine, path.max_rel, path.min_cosine)
             : "ok";
    report.note(fmt::format(
        "[{}] worst {}: relative L2 {:.3g}, cosine {:.6f}; logits: {:.3g}, {:.6f}, top-1 equal "
        "{:.0f} %: {}",
        path.name, worst->name, worst->relative_l2, worst->cosine, differences.back().relative_l2,
        differences.back().cosine, 100 * top1, verdict));
    all.push_back({{"path", path.name},
                   {"passed", over == nullptr},
                   {"top1", top1},
                   {"layers", std::move(layers)}});
    if (over && first_failure.empty()) first_failure = path.name + ": " + over->name;
  }
  report.add("paths", first_failure.empty(),
             first_failure.empty()
                 ? fmt::format("{} paths agree with {} fp32 forward on {} tokens", paths.size(),
                               on_gpu ? "the CPU's" : "the", ids.size())
                 : "first over its limit: " + first_failure,
             {{"paths", std::move(all)}});
}

}  // namespace nibble
