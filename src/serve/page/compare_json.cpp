// SPDX-License-Identifier: MIT
#include "serve/page/compare_json.h"

#include "core/json.h"
#include "runlog/run_record.h"
#include "runlog/run_series.h"
#include "runlog/run_tables.h"

namespace nibble {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostPoints = 500;  // a chart is not wider than that

// The last point always stays: it is where the run is now.
Json curve_json(const ThinnedSeries& s) {
  const size_t n = s.x().size(), stride = n / kMostPoints + 1;
  Json x = Json::array(), y = Json::array();
  for (size_t i = 0; i < n; ++i) {
    if (i % stride != 0 && i + 1 != n) continue;
    x.push_back(s.x()[i]);
    y.push_back(s.y()[i]);
  }
  return {{"x", x}, {"y", y}};
}

}  // namespace

Json metrics_json(const std::filesystem::path& run) {
  const RunSeries s = read_series(run);
  Json j = Json::object();
  const auto add = [&](const char* name, const ThinnedSeries& series) {
    if (!series.empty()) j[name] = curve_json(series);
  };
  add("loss", s.loss);
  add("smoothed", s.smoothed);
  add("taught", s.taught);
  add("kept", s.kept);
  add("held_out", s.held_out);
  add("grad_norm", s.grad_norm);
  add("lr", s.lr);
  add("speed", s.speed);
  add("rss_mib", s.rss_mib);
  add("gpu_mib", s.gpu_mib);
  return j;
}

Json gate_scores_json(const std::filesystem::path& run) {
  Json list = Json::array();
  for (const GateScores& g : read_gates(run)) {
    if (g.groups.empty()) continue;
    Json scores = Json::object();
    for (const GateScore& s : g.groups)
      scores[s.group] = {{"passed", s.passed}, {"total", s.total}};
    list.push_back({{"step", g.step}, {"scores", scores}});
  }
  return list;
}

Json compare_json(const std::filesystem::path& one, const std::filesystem::path& other) {
  Json j = parse_json<Json>(comparison_json(compare_runs({read_record(one), read_record(other)})));
  j["losses"] = {curve_json(read_series(one).smoothed), curve_json(read_series(other).smoothed)};
  return j;
}

}  // namespace nibble
