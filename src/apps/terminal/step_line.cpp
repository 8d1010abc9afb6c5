// SPDX-License-Identifier: MIT
#include "apps/terminal/step_line.h"

#include <fmt/format.h>

#include <cmath>

#include "core/memory_info.h"
#include "core/text/columns.h"
#include "core/utc_time.h"

namespace nibble {
namespace {

// One part of the line: ways to say it, from the longest to the shortest.
struct Part {
  std::vector<std::string> ways;
  size_t at = 0;
  const std::string& text() const { return ways[at]; }
  bool shorten() { return at + 1 < ways.size() && (++at, true); }
};

std::string number(double v, const char* format) {
  return std::isfinite(v) ? fmt::format(fmt::runtime(format), v) : "not finite";
}

// "gate 100: identity 98 %, retention 95 %", then without its step, then the lowest alone.
Part gate_part(const StepLine& l) {
  if (l.gate.empty()) return {{""}};
  std::string all;
  const std::pair<std::string, double>* lowest = &l.gate.front();
  for (const auto& g : l.gate) {
    all += fmt::format("{}{} {:.0f} %", all.empty() ? "" : ", ", g.first, g.second);
    if (g.second < lowest->second) lowest = &g;
  }
  const std::string least =
      fmt::format("gate {}{:.0f} %", l.gate.size() > 1 ? ">= " : "", lowest->second);
  return {{fmt::format("gate {}: {}", l.gate_step, all), "gate " + all, least, ""}};
}

std::string joined_parts(const std::vector<Part>& parts) {
  std::string out;
  for (const Part& p : parts) {
    if (!p.text().empty()) out += (out.empty() ? "" : "  ") + p.text();
  }
  return out;
}

}  // namespace

std::string step_text(const StepLine& l, size_t columns) {
  enum { step, loss, rate, speed, memory, left, held_out, gate };
  const StepRecord& r = l.at;
  const std::string count =
      l.steps > 0 ? fmt::format("{}/{}", r.step, l.steps) : fmt::format("{}", r.step);
  const bool ended = l.steps > 0 && r.step >= l.steps;
  const std::string time = duration_text(l.seconds_left);
  const bool gpu = r.gpu_bytes > 0;
  std::vector<Part> parts(gate + 1);
  parts[step] = {{"step " + count, count}};
  parts[loss] = {{"loss " + number(r.loss, "{:.4f}")}};
  parts[rate] = {{"lr " + number(r.lr, "{:.2e}"), ""}};
  parts[speed] = {{fmt::format("{:.0f} tok/s", r.tokens_per_second), ""}};
  parts[memory] = {{(gpu ? "GPU " : "") + format_bytes(gpu ? r.gpu_bytes : r.rss_bytes), ""}};
  parts[left] =
      ended || !std::isfinite(l.seconds_left) ? Part{{""}} : Part{{time + " left", time, ""}};
  parts[held_out] = std::isfinite(l.held_out)
                        ? Part{{fmt::format("held out {:.4f}", l.held_out), ""}}
                        : Part{{""}};
  parts[gate] = gate_part(l);
  // In this order they give way.
  for (const int i : {gate, memory, rate, gate, held_out, speed, step, left, gate, left}) {
    if (columns_of(joined_parts(parts)) <= columns) break;
    parts[size_t(i)].shorten();
  }
  return clipped(joined_parts(parts), columns);
}

}  // namespace nibble
