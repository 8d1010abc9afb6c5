// SPDX-License-Identifier: MIT
// check --paths: the residual stream of every execution path, layer by layer, against the plain
// fp32 forward over the whole sequence.
#include <algorithm>

#include "apps/check_parts.h"
#include "model/evaluate.h"

namespace nibble {
namespace {

struct Path {
  std::string name;
  double max_rel, min_cosine;
  std::function<void(Backend&)> run;
};

// The residual stream after each layer, and the logits.
std::vector<Recorded> record(Backend& backend, const std::function<void(Backend&)>& run) {
  std::vector<Recorded> seen;
  RecordingBackend recording(backend, [&](Recorded r) {
    if (r.name == "logits" || r.name.ends_with(".out")) seen.push_back(std::move(r));
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

}  // namespace

void check_paths(const CheckOptions& o, const Runtime& r, const std::vector<CheckPrompt>& prompts,
                 CheckReport& report) {
  const std::vector<int32_t>& ids = prompts.front().ids;
  const std::vector<int64_t> wide(ids.begin(), ids.end());
  const auto forward = [&](DType compute, Activations activations) {
    return [&, compute, activations](Backend& be) {
      evaluate(be, r.model, wide, {}, 1, int64_t(wide.size()), {compute, DType::f32, activations});
    };
  };
  const auto through_cache = [&](Backend& be) {
    EngineOptions e;
    e.context = int64_t(ids.size());
    e.cache = DType::f32;
    Engine(be, r.model, e).extend_all(ids);
  };
  // The cache changes no arithmetic. The others' limits are a few times what random models of 2 to
  // 28 layers show, and far below what a wrong scale or a wrong nibble order does.
  std::vector<Path> paths = {
      {"cache", 1e-5, 0.99999, through_cache},
      {"bf16", o.max_rel.value_or(0.05), o.min_cosine.value_or(0.999),
       forward(DType::bf16, Activations::none)},
      {"nvfp4", o.max_rel.value_or(0.7), o.min_cosine.value_or(0.75),
       forward(DType::f32, Activations::nvfp4)},
  };
  if (any_packed(r.model.weights)) {
    paths.push_back({"int8", o.max_rel.value_or(0.1), o.min_cosine.value_or(0.99),
                     forward(DType::f32, Activations::int8)});
  } else {
    report.note("[int8] not run: it needs NVFP4 weights");
  }

  const std::vector<Recorded> reference =
      record(*r.backend, forward(DType::f32, Activations::none));
  nlohmann::json all = nlohmann::json::array();
  std::string first_failure;
  for (const Path& path : paths) {
    const std::vector<Recorded> seen = record(*r.backend, path.run);
    const std::vector<Difference> differences = compare_recordings(seen, reference);
    const Difference *over = nullptr, *worst = nullptr;
    nlohmann::json layers = nlohmann::json::array();
    for (const Difference& d : differences) {
      layers.push_back({{"name", d.name},
                        {"relative_l2", json_number(d.relative_l2)},
                        {"cosine", json_number(d.cosine)}});
      if (!worst || !(d.relative_l2 <= worst->relative_l2)) worst = &d;
      if (!over && (d.over(path.max_rel) || !(d.cosine >= path.min_cosine))) over = &d;
    }
    const double top1 = top1_agreement(seen.back(), reference.back());
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
                 ? fmt::format("{} paths agree with the fp32 forward on {} tokens", paths.size(),
                               ids.size())
                 : "first over its limit: " + first_failure,
             {{"paths", std::move(all)}});
}

}  // namespace nibble
