// SPDX-License-Identifier: MIT
#include "apps/run_recorder.h"

#include <algorithm>
#include <cmath>

#include "apps/run_folder.h"
#include "apps/svg_plot.h"
#include "apps/utc_time.h"
#include "core/error.h"
#include "core/file.h"
#include "core/log.h"
#include "core/memory_info.h"

namespace nibble {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kStatusInterval{500};
constexpr std::chrono::seconds kPlotInterval{30}, kGpuRefresh{5};

std::string now_text() { return utc_text(std::chrono::system_clock::now()); }

PlotSeries curve(std::string name, const ThinnedSeries& s, LineStyle style, int colour) {
  return {std::move(name), s.x(), s.y(), style, colour};
}

// Losses that fall to a small part of what they were are read on a logarithmic scale.
PlotScale loss_scale(const ThinnedSeries& loss) {
  double low = 0, high = 0;
  for (const double v : loss.y()) {
    if (!std::isfinite(v)) continue;
    if (v <= 0) return PlotScale::linear;
    low = low == 0 ? v : std::min(low, v);
    high = std::max(high, v);
  }
  return high > 20 * low ? PlotScale::logarithmic : PlotScale::linear;
}

std::string command_text() {
  std::error_code ec;
  return fmt::format("{}\n# in {}\n# nibble {}, started {}\n", own_command_line(),
                     std::filesystem::current_path(ec).string(), NIBBLE_VERSION, now_text());
}

}  // namespace

RunRecorder::RunRecorder(std::filesystem::path folder, std::string command,
                         const std::string& config, int64_t steps, MemorySource memory)
    : folder_(std::move(folder)),
      memory_(memory, kGpuRefresh),
      last_step_(Clock::now()),
      last_plots_(last_step_) {
  status_.command = std::move(command);
  status_.steps = steps;
  status_.started_utc = now_text();
  set_own_process(status_);
  write_text_file_atomic(folder_ / "config.toml", config);
  write_text_file_atomic(folder_ / "command.txt", command_text());
  metrics_ = std::make_unique<MetricsWriter>(folder_ / "metrics.jsonl");
  write_status();
}

RunRecorder::~RunRecorder() {
  try {
    finish(RunState::failed, "it ended with an error");
  } catch (...) {  // nothing more can be done, and a destructor does not throw
  }
}

void RunRecorder::attempt(const std::function<void()>& write) {
  try {
    write();
  } catch (const Error& e) {
    if (!warned_) log_warning("the record of this run is not whole: {}", e.what());
    warned_ = true;
  }
}

void RunRecorder::write_status() {
  status_.updated_utc = now_text();
  replace_file(folder_ / "status.json", status_json(status_));
  last_status_ = Clock::now();
}

void RunRecorder::step(const StepRecord& record) {
  StepRecord r = record;
  if (r.rss_bytes == 0) r.rss_bytes = process_resident_bytes();
  if (r.tokens_per_second == 0 && r.seconds > 0) r.tokens_per_second = double(r.tokens) / r.seconds;
  const auto now = Clock::now();
  const double seconds = std::chrono::duration<double>(now - last_step_).count();
  last_step_ = now;
  // The first interval holds the loading; then a mean of about the last ten.
  const bool first = loss_.empty();
  if (first) {
    step_seconds_ = r.seconds;
  } else {
    step_seconds_ += 0.1 * (seconds - step_seconds_);
  }
  const auto x = double(r.step);
  loss_.add(x, r.loss);
  smoothed_.add(x, r.smoothed_loss);
  lr_.add(x, r.lr);
  speed_.add(x, r.tokens_per_second);
  rss_.add(x, double(r.rss_bytes) / (1 << 20));
  status_.last = r;
  status_.eta_seconds = step_seconds_ * double(std::max<int64_t>(0, status_.steps - r.step));
  attempt([&] { metrics_->append(r); });
  if (first || now - last_status_ >= kStatusInterval) attempt([&] { write_status(); });
  if (now - last_plots_ >= kPlotInterval) {
    last_plots_ = now;
    attempt([&] {
      write_plots();
      replace_file(folder_ / "memory.json", memory_.json());
    });
  }
}

void RunRecorder::held_out(int64_t step, double loss) {
  held_out_.add(double(step), loss);
  status_.held_out_step = step;
  status_.held_out_loss = loss;
  attempt([&] {
    metrics_->append_held_out(step, loss);
    write_status();
  });
}

void RunRecorder::phase(std::string_view name, int64_t step) {
  const int64_t n = steps_per_epoch_;
  const bool epochs = n > 0 && step > 0;  // steps count from 1, epochs from 0
  memory_.sample(name, epochs ? (step - 1) / n : 0, epochs ? (step - 1) % n + 1 : step, step);
}

void RunRecorder::checkpoint(const std::filesystem::path& path,
                             const std::filesystem::path& model) {
  status_.checkpoint = std::filesystem::absolute(path).string();
  status_.checkpoint_model = model.empty() ? "" : std::filesystem::absolute(model).string();
  attempt([&] { write_status(); });
}

void RunRecorder::exported(const std::filesystem::path& model) {
  status_.output = std::filesystem::absolute(model).string();
  attempt([&] { write_status(); });
}

void RunRecorder::write_plots() const {
  const auto write = [&](const char* file, Plot plot) {
    plot.title += " of " + folder_.filename().string();
    plot.x_label = "step";
    replace_file(folder_ / file, svg_text(plot));
  };
  Plot loss{.title = "Loss", .y_label = "loss", .y_scale = loss_scale(loss_)};
  loss.series = {curve("each step", loss_, LineStyle::faint, 0),
                 curve("smoothed", smoothed_, LineStyle::strong, 0)};
  if (!held_out_.empty()) {
    loss.series.push_back(curve("held out", held_out_, LineStyle::strong, 1));
  }
  write("loss.svg", std::move(loss));
  const auto single = [&](const char* file, Plot plot, const ThinnedSeries& s, int colour) {
    plot.y_from_zero = true;
    plot.series = {curve("", s, LineStyle::strong, colour)};
    write(file, std::move(plot));
  };
  single("lr.svg", {.title = "Learning rate", .y_label = "rate"}, lr_, 3);
  single("speed.svg", {.title = "Speed", .y_label = "tokens per second"}, speed_, 2);
  single("memory.svg", {.title = "Resident memory", .y_label = "MiB"}, rss_, 1);
}

void RunRecorder::finish(RunState state, std::string_view message) {
  if (finished_) return;
  finished_ = true;
  status_.state = state;
  status_.message = message;
  if (state != RunState::interrupted)
    status_.eta_seconds = state == RunState::finished ? 0 : kNoValue;
  attempt([&] { write_status(); });
  attempt([&] {
    write_plots();
    replace_file(folder_ / "memory.json", memory_.json());
  });
  if (!extra_report_.empty()) attempt([&] { memory_.write(extra_report_); });
}

}  // namespace nibble
