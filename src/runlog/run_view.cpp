// SPDX-License-Identifier: MIT
#include "runlog/run_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/command_line.h"
#include "core/memory_info.h"
#include "core/text/visible.h"
#include "core/utc_time.h"
#include "runlog/run_folder.h"

namespace nibble {
namespace {

constexpr size_t kRecent = 5;
constexpr double kQuietSeconds = 60;  // without an update, before that is mentioned

std::string value_text(double v, const char* format) {
  return std::isfinite(v) ? fmt::format(fmt::runtime(format), v) : "-";
}

double seconds_between(const std::string& from_utc, const std::string& to_utc) {
  const auto from = parse_utc(from_utc), to = parse_utc(to_utc);
  return from && to ? std::chrono::duration<double>(*to - *from).count() : kNoValue;
}

std::string kept_text(const StepRecord& r) {
  return r.kept_tokens > 0 ? "  kept " + value_text(r.kept_loss, "{:.5f}") : "";
}

std::string step_text(const StepRecord& r) {
  return fmt::format("step {:>6}  loss {}{}  lr {}  |g| {}  {:.1f} tokens/s  {:.2f} s{}", r.step,
                     value_text(r.loss, "{:.4f}"), kept_text(r), value_text(r.lr, "{:.3g}"),
                     value_text(r.grad_norm, "{:.3g}"), r.tokens_per_second, r.seconds,
                     r.skipped ? "  skipped" : "");
}

std::string bar(double share, int width) {
  const int filled = int(std::clamp(share, 0.0, 1.0) * width);
  return fmt::format("[{:#<{}}{:-<{}}]", "", filled, "", width - filled);
}

}  // namespace

std::string sparkline(std::span<const double> values, size_t width) {
  static constexpr const char* kBars[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  std::vector<double> means;
  const size_t parts = std::min(width, values.size());
  for (size_t i = 0; i < parts; ++i) {
    double sum = 0;
    size_t n = 0;
    for (size_t k = i * values.size() / parts; k < (i + 1) * values.size() / parts; ++k) {
      if (!std::isfinite(values[k])) continue;
      sum += values[k];
      ++n;
    }
    if (n > 0) means.push_back(sum / double(n));
  }
  if (means.empty()) return "";
  const auto [low, high] = std::ranges::minmax(means);
  std::string out;
  for (const double v : means) {
    const double share = high > low ? (v - low) / (high - low) : 0;
    out += kBars[std::clamp(int(share * 8), 0, 7)];
  }
  return out;
}

RunView::RunView(std::filesystem::path folder)
    : folder_(std::move(folder)), metrics_(folder_ / "metrics.jsonl") {}

void RunView::refresh() {
  // First the process, then what it wrote: a run that ends between the two is not taken for dead.
  process_ = process_state(folder_, read_status(folder_));
  status_ = read_status(folder_);
  for (const StepRecord& r : metrics_.read_new()) {
    loss_.add(double(r.step), r.loss);
    recent_.push_back(r);
  }
  if (recent_.size() > kRecent) recent_.erase(recent_.begin(), recent_.end() - kRecent);
  // The status is written less often than the steps.
  if (!recent_.empty() && recent_.back().step > status_.last.step) status_.last = recent_.back();
}

bool RunView::gone() const {
  return status_.state == RunState::running && process_ == ProcessState::gone;
}

bool RunView::running() const { return status_.state == RunState::running && !gone(); }

std::string RunView::state_text() const {
  if (gone()) return fmt::format("the process has gone; last step {}", status_.last.step);
  std::string text(run_state_name(status_.state));
  if (!status_.message.empty()) text += ": " + status_.message;
  if (!running()) return text;
  text += fmt::format(" (pid {}{})", status_.pid,
                      process_ == ProcessState::on_another_host ? " on " + status_.host : "");
  const double quiet = seconds_between(status_.updated_utc, utc_now_text());
  if (quiet > std::max(kQuietSeconds, 5 * status_.last.seconds))
    text += fmt::format(", no news for {}", duration_text(quiet));
  return text;
}

std::string RunView::progress_text() const {
  const RunStatus& s = status_;
  if (s.steps <= 0) return fmt::format("{}", s.last.step);
  const double share = double(s.last.step) / double(s.steps);
  return fmt::format("{}/{}  {} {:.0f} %", s.last.step, s.steps, bar(share, 24), share * 100);
}

std::string RunView::try_text() const {
  std::error_code ec;
  for (const std::string& model : {status_.output, status_.checkpoint_model}) {
    if (!model.empty() && std::filesystem::exists(model, ec)) {
      return "nibble chat --model " + shell_quoted(model);
    }
  }
  return "";
}

std::vector<std::string> RunView::lines() const {
  const RunStatus& s = status_;
  const StepRecord& r = s.last;
  const auto row = [](const char* name, const std::string& text) {
    return fmt::format("{:<9} {}", name, visible_line(text));
  };
  std::vector<std::string> lines;
  lines.push_back(row("run", folder_.string()));
  lines.push_back(row("state", state_text()));
  lines.push_back(row("step", progress_text()));
  const std::string until = running() ? utc_now_text() : s.updated_utc;
  const bool says_left = running() && std::isfinite(s.eta_seconds);
  lines.push_back(
      row("time", duration_text(seconds_between(s.started_utc, until)) +
                      (says_left ? ", " + duration_text(s.eta_seconds) + " left" : "")));
  lines.push_back(row("loss", fmt::format("{}  smoothed {}{}", value_text(r.loss, "{:.4f}"),
                                          value_text(r.smoothed_loss, "{:.4f}"),
                                          std::isfinite(s.held_out_loss)
                                              ? fmt::format("  held out {:.4f} (step {})",
                                                            s.held_out_loss, s.held_out_step)
                                              : "")));
  lines.push_back(row("rate", fmt::format("lr {}  |g| {}", value_text(r.lr, "{:.3g}"),
                                          value_text(r.grad_norm, "{:.3g}"))));
  lines.push_back(row("speed", fmt::format("{:.1f} tokens/s", r.tokens_per_second)));
  lines.push_back(row("memory", format_bytes(r.rss_bytes)));
  if (const std::string curve = sparkline(loss_.y(), 60); !curve.empty()) {
    lines.push_back(row("curve", curve));
  }
  for (size_t i = 0; i < recent_.size(); ++i) {
    lines.push_back(row(i == 0 ? "last" : "", step_text(recent_[i])));
  }
  if (!s.checkpoint.empty()) lines.push_back(row("saved", s.checkpoint));
  if (!s.output.empty()) lines.push_back(row("output", s.output));
  if (const std::string command = try_text(); !command.empty()) {
    lines.push_back(row("try it", command));
  }
  return lines;
}

std::string RunView::line() const {
  const StepRecord& r = status_.last;
  std::string text = status_.steps > 0 ? fmt::format("step {}/{}", r.step, status_.steps)
                                       : fmt::format("step {}", r.step);
  text +=
      fmt::format("  loss {}  smoothed {}{}  lr {}  {:.1f} tokens/s  {}",
                  value_text(r.loss, "{:.4f}"), value_text(r.smoothed_loss, "{:.4f}"), kept_text(r),
                  value_text(r.lr, "{:.3g}"), r.tokens_per_second, format_bytes(r.rss_bytes));
  if (std::isfinite(status_.eta_seconds)) {
    text += "  " + duration_text(status_.eta_seconds) + " left";
  }
  return text;
}

}  // namespace nibble
