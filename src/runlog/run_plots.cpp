// SPDX-License-Identifier: MIT
#include "runlog/run_plots.h"

#include <algorithm>
#include <cmath>

#include "core/file.h"

namespace nibble {
namespace {

PlotSeries curve(std::string name, const ThinnedSeries& s, LineStyle style, int colour) {
  return {std::move(name), s.x(), s.y(), style, colour};
}

// Losses that fall to a small part of what they were are read on a logarithmic scale.
PlotScale loss_scale(const std::vector<const ThinnedSeries*>& losses) {
  double low = 0, high = 0;
  for (const ThinnedSeries* loss : losses) {
    for (const double v : loss->y()) {
      if (!std::isfinite(v)) continue;
      if (v <= 0) return PlotScale::linear;
      low = low == 0 ? v : std::min(low, v);
      high = std::max(high, v);
    }
  }
  return high > 20 * low ? PlotScale::logarithmic : PlotScale::linear;
}

Plot gates_plot(const std::vector<GateScores>& gates) {
  Plot plot{.title = "Gate scores", .y_label = "% passed", .y_from_zero = true};
  plot.y_includes = 100;
  for (const GateScores& g : gates) {
    for (const GateScore& score : g.groups) {
      auto it = std::ranges::find(plot.series, score.group, &PlotSeries::name);
      if (it == plot.series.end()) {
        plot.series.push_back({score.group, {}, {}, LineStyle::strong, int(plot.series.size())});
        it = plot.series.end() - 1;
      }
      if (!it->x.empty() && double(g.step) <= it->x.back()) {  // taken back to an earlier step
        it->x.push_back(double(g.step));
        it->y.push_back(kNoValue);
      }
      it->x.push_back(double(g.step));
      it->y.push_back(100.0 * double(score.passed) / double(std::max<int64_t>(1, score.total)));
    }
  }
  return plot;
}

}  // namespace

std::vector<NamedPlot> run_plots(const RunSeries& s, const std::vector<GateScores>& gates,
                                 const std::string& run_name) {
  std::vector<NamedPlot> plots;
  const auto add = [&](const char* file, Plot plot) {
    if (!run_name.empty()) plot.title += " of " + run_name;
    plot.x_label = "step";
    plots.push_back({file, std::move(plot)});
  };
  Plot loss{.title = "Loss", .y_label = "loss", .y_scale = loss_scale({&s.loss})};
  loss.series = {curve("each step", s.loss, LineStyle::faint, 0),
                 curve("smoothed over 20", s.smoothed, LineStyle::strong, 0)};
  if (!s.held_out.empty()) {
    loss.series.push_back(curve("held out", s.held_out, LineStyle::strong, 1));
  }
  if (!s.kept.empty() && !s.taught.empty()) {
    loss.series.push_back(curve("taught rows", s.taught, LineStyle::faint, 2));
  }
  add("loss.svg", std::move(loss));
  if (!s.kept.empty()) {
    Plot kept{.title = "Divergence of kept rows", .y_label = "nats a token", .y_from_zero = true};
    kept.series = {curve("", s.kept, LineStyle::strong, 2)};
    add("kept.svg", std::move(kept));
  }
  if (!gates.empty()) add("gates.svg", gates_plot(gates));
  const auto single = [&](const char* file, Plot plot, const ThinnedSeries& series, int colour) {
    plot.y_from_zero = true;
    plot.series = {curve("", series, LineStyle::strong, colour)};
    add(file, std::move(plot));
  };
  const bool norms = std::ranges::any_of(s.grad_norm.y(), [](double v) { return v > 0; });
  if (norms) {
    Plot grad{.title = "Gradient norm", .y_label = "norm before the clip"};
    grad.y_scale = loss_scale({&s.grad_norm});
    grad.series = {curve("", s.grad_norm, LineStyle::strong, 4)};
    add("grad.svg", std::move(grad));
  }
  single("lr.svg", {.title = "Learning rate", .y_label = "rate"}, s.lr, 3);
  single("speed.svg", {.title = "Speed", .y_label = "tokens per second"}, s.speed, 2);
  if (s.gpu_mib.empty()) {
    single("memory.svg", {.title = "Resident memory", .y_label = "MiB"}, s.rss_mib, 1);
  } else {
    Plot memory{.title = "Memory", .y_label = "MiB", .y_from_zero = true};
    memory.series = {curve("GPU", s.gpu_mib, LineStyle::strong, 2),
                     curve("resident", s.rss_mib, LineStyle::strong, 1)};
    add("memory.svg", std::move(memory));
  }
  return plots;
}

void write_plots(const std::filesystem::path& folder, const std::vector<NamedPlot>& plots) {
  for (const NamedPlot& p : plots) replace_file(folder / p.file, svg_text(p.plot));
}

Plot compare_losses(const std::vector<std::pair<std::string, RunSeries>>& runs) {
  Plot plot{.title = "Loss", .x_label = "step", .y_label = "loss"};
  std::vector<const ThinnedSeries*> losses;
  bool held_out = false;
  for (size_t i = 0; i < runs.size(); ++i) {
    const RunSeries& s = runs[i].second;
    losses.push_back(&s.smoothed);
    held_out = held_out || !s.held_out.empty();
    plot.series.push_back(curve(runs[i].first, s.smoothed, LineStyle::strong, int(i)));
  }
  for (size_t i = 0; i < runs.size(); ++i) {
    const RunSeries& s = runs[i].second;
    if (s.held_out.empty()) continue;
    plot.series.push_back(curve("", s.held_out, LineStyle::dashed, int(i)));
  }
  plot.title = held_out ? "Loss, smoothed (held out: dashed)" : "Loss, smoothed";
  plot.y_scale = loss_scale(losses);
  return plot;
}

}  // namespace nibble
