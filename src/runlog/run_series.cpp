// SPDX-License-Identifier: MIT
#include "runlog/run_series.h"

#include <fmt/format.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <map>

#include "core/file.h"
#include "core/json.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using nlohmann::ordered_json;

// A pipe under the name of a record would keep us waiting: it counts as absent.
std::ifstream open_lines(const fs::path& file) {
  std::error_code ec;
  return fs::is_regular_file(file, ec) ? std::ifstream(file, std::ios::binary) : std::ifstream();
}

template <class Json>
void for_each_line(const fs::path& file, const std::function<void(const Json&)>& visit) {
  std::ifstream in = open_lines(file);
  for (std::string line; std::getline(in, line);) {
    const Json j = parse_json_or_discard<Json>(line);
    if (j.is_object()) visit(j);
  }
}

template <class Json>
int64_t count(const Json& j, const char* key) {
  const auto it = j.find(key);
  return it != j.end() && it->is_number_integer() ? it->template get<int64_t>() : 0;
}

std::string text(const json& j, const char* key) {
  const auto it = j.find(key);
  return it != j.end() && it->is_string() ? it->get<std::string>() : "";
}

void read_gpu_memory_of(const fs::path& folder, RunSeries& series) {
  std::error_code ec;
  const fs::path file = folder / "memory.json";
  if (!fs::is_regular_file(file, ec)) return;
  const json j = parse_json_or_discard<json>(read_text_file(file, 64 << 20));
  if (!j.is_object() || text(j, "Source") != "gpu" || !j.contains("Samples")) return;
  for (const json& s : j["Samples"]) {
    if (!s.is_object() || count(s, "GlobalStep") <= 0) continue;
    series.gpu_mib.add(double(count(s, "GlobalStep")), double(count(s, "PidMemoryMiB")));
  }
}

std::string languages_of(const ordered_json& score) {
  std::string out;
  const auto languages = score.find("languages");
  if (languages == score.end() || !languages->is_object() || languages->size() < 2) return out;
  for (const auto& [language, s] : languages->items()) {
    if (!s.is_object()) continue;
    out += fmt::format("{}{} {}/{}", out.empty() ? "" : ", ", language, count(s, "passed"),
                       count(s, "total"));
  }
  return out;
}

}  // namespace

void RunSeries::add(const StepRecord& r) {
  const auto x = double(r.step);
  const auto add = [&](ThinnedSeries& s, double y) {
    if (r.step <= last_step_) s.add(x, kNoValue);  // taken back to an earlier step: another line
    s.add(x, y);
  };
  add(loss, r.loss);
  add(smoothed, r.smoothed_loss);
  add(grad_norm, r.grad_norm);
  add(lr, r.lr);
  add(speed, r.tokens_per_second);
  add(rss_mib, double(r.rss_bytes) / (1 << 20));
  if (std::isfinite(r.taught_loss)) add(taught, r.taught_loss);
  if (std::isfinite(r.kept_loss)) add(kept, r.kept_loss);
  last_step_ = r.step;
}

void RunSeries::add_held_out(int64_t step, double value) {
  const bool back = !held_out.empty() && double(step) <= held_out.x().back();
  if (back) held_out.add(double(step), kNoValue);
  held_out.add(double(step), value);
}

RunSeries read_series(const fs::path& folder) {
  RunSeries series;
  std::ifstream in = open_lines(folder / "metrics.jsonl");
  for (std::string line; std::getline(in, line);) {
    if (const auto step = parse_metrics_line(line)) {
      series.add(*step);
    } else if (const auto held_out = parse_held_out_line(line)) {
      series.add_held_out(held_out->step, held_out->loss);
    }
  }
  read_gpu_memory_of(folder, series);
  return series;
}

std::vector<GateScores> read_gates(const fs::path& folder) {
  std::vector<GateScores> gates;
  for_each_line<ordered_json>(folder / "probes.jsonl", [&](const ordered_json& j) {
    const auto scores = j.find("scores");
    if (scores == j.end() || !scores->is_object()) return;
    GateScores g{count(j, "step"), {}};
    for (const auto& [group, score] : scores->items()) {
      if (!score.is_object() || count(score, "total") <= 0) continue;
      g.groups.push_back(
          {group, count(score, "passed"), count(score, "total"), languages_of(score)});
    }
    gates.push_back(std::move(g));
  });
  return gates;
}

std::string CollapseEvent::text() const {
  std::string out = fmt::format("step {}: {}; {}", step, reason, action);
  if (action != "stop" && std::isfinite(lr_factor)) out += fmt::format(", rate x {:g}", lr_factor);
  return out;
}

std::vector<CollapseEvent> read_collapses(const fs::path& folder) {
  std::vector<CollapseEvent> events;
  for_each_line<json>(folder / "probes.jsonl", [&](const json& j) {
    if (text(j, "event") != "collapse") return;
    const auto factor = j.find("lr_factor");
    events.push_back({count(j, "step"), text(j, "reason"), text(j, "action"),
                      factor != j.end() && factor->is_number() ? factor->get<double>() : kNoValue});
  });
  return events;
}

std::vector<ReplyHistory> read_replies(const fs::path& folder) {
  std::vector<ReplyHistory> list;
  std::map<std::string, size_t> place;
  for_each_line<json>(folder / "replies.jsonl", [&](const json& j) {
    const std::string group = text(j, "group"), prompt = text(j, "prompt");
    const std::string id = text(j, "id").empty() ? prompt : text(j, "id");
    const Reply reply{count(j, "step"), text(j, "reply"),
                      j.contains("passed") && j["passed"] == true, text(j, "failed")};
    const auto [at, fresh] = place.try_emplace(group + '\0' + id, list.size());
    if (fresh) list.push_back({id, group, prompt, reply, reply});
    list[at->second].last = reply;
  });
  return list;
}

}  // namespace nibble
