// SPDX-License-Identifier: MIT
#include "runlog/run_recorder.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>

#include "core/command_line.h"
#include "core/durable/memory_reserve.h"
#include "core/error.h"
#include "core/file.h"
#include "core/json.h"
#include "core/log.h"
#include "core/memory_info.h"
#include "core/sha256.h"
#include "core/utc_time.h"
#include "core/version.h"
#include "guard/interrupt.h"
#include "runlog/earlier_run.h"
#include "runlog/run_folder.h"
#include "runlog/run_plots.h"
#include "runlog/run_report.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kStatusInterval{500};
constexpr int kStatusShare = 100;  // a hundredth of the time is what writing it may take
constexpr std::chrono::seconds kPlotInterval{30};
constexpr double kHashSecondsAfterAnError = 1;

std::optional<ChainPlace> chain_place;
// The run that waits for its explanation. Plain bytes: a thread's first use of anything with a
// destructor takes memory, and aborts where there is none.
thread_local char failed_run[4096];
void set_failed_run(const fs::path& folder) {
  const std::string text = folder.string();
  if (text.size() < sizeof failed_run) std::strcpy(failed_run, text.c_str());
}

// The weights among the files of a directory.
std::vector<fs::path> weight_files(const fs::path& path) {
  std::error_code ec;
  if (!fs::is_directory(path, ec)) return {path};
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(path, ec)) {
    const std::string kind = entry.path().extension().string();
    const bool weights = kind == ".safetensors" || kind == ".dat";
    if (weights && entry.is_regular_file(ec)) files.push_back(entry.path());
  }
  std::ranges::sort(files);
  return files;
}

FileLock take_lock(const fs::path& folder) {
  auto lock = FileLock::take(lock_in(folder));
  if (!lock) {
    throw_format("{} is the folder of a run that goes on ({})", folder.string(),
                 lock_holder(lock_in(folder)));
  }
  return std::move(*lock);
}

bool has_files(const fs::path& folder) {
  std::error_code ec;
  return fs::is_directory(folder, ec) && !fs::is_empty(folder, ec);
}

// A guard above us that has to end this run says so in its record.
void tell_guard(const fs::path& folder) {
  const char* const file = std::getenv(kGuardedRunsVariable);
  std::error_code ec;
  if (!file || !fs::is_regular_file(file, ec)) return;
  append_file(file, fs::absolute(folder).lexically_normal().string() + "\n");
}

std::string command_text() {
  std::error_code ec;
  return fmt::format("{}\n# in {}\n# {}, started {}\n", own_command_line(),
                     std::filesystem::current_path(ec).string(), version_line(), utc_now_text());
}

}  // namespace

RunRecorder::RunRecorder(fs::path folder, std::string command, const std::string& config,
                         int64_t steps, MemorySource memory)
    : folder_(std::move(folder)),
      lock_(take_lock(folder_)),
      last_words_(folder_ / "status.json"),
      memory_(std::move(memory)),
      last_step_(Clock::now()),
      last_plots_(last_step_) {
  std::error_code ec;
  record_.name = fs::absolute(folder_).lexically_normal().filename().string();
  record_.command_line = own_command_line();
  record_.directory = fs::current_path(ec).string();
  record_.version = kVersion;
  record_.commit = kCommit;
  record_.config = config_lines(config);
  record_.chain = chain_place;
  status_.command = std::move(command);
  status_.steps = steps;
  status_.started_utc = utc_now_text();
  set_own_process(status_);
  replace_file(folder_ / "config.toml", config);
  replace_file(folder_ / "command.txt", command_text());
  metrics_ = std::make_unique<MetricsWriter>(folder_ / "metrics.jsonl");
  try {
    write_status();
    write_record();
    tell_guard(folder_);
  } catch (...) {  // a run that could not begin does not say that it goes on
    spend_memory_reserve();
    try {
      status_.state = RunState::failed;
      status_.message = "it could not begin";
      attempt([&] { write_status(); });
    } catch (const std::bad_alloc&) {
      last_words_.say();
    }
    throw;
  }
}

RunRecorder::~RunRecorder() {
  if (finished_) return;
  spend_memory_reserve();
  try {
    if (!stepped_ && !has_files(folder_ / "checkpoints")) {
      // Nothing was done that could be looked at or gone on with; the error says what was wrong.
      finished_ = true;
      last_words_.clear();
      fs::remove_all(folder_);
      return;
    }
    finish(RunState::failed, "it ended with an error", ExitCode::internal,
           kHashSecondsAfterAnError);
    set_failed_run(folder_);
  } catch (...) {  // a destructor does not throw; that the run goes on would be untrue
    last_words_.say();
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
  const auto start = Clock::now();
  status_.updated_utc = utc_now_text();
  if (status_.state == RunState::running) {
    RunStatus ended = status_;
    ended.state = RunState::interrupted;
    ended.message = "a signal or a lack of memory ended it";
    last_words_.set(status_json(ended));
  } else {
    last_words_.clear();
  }
  next_status_ = start + kStatusInterval;
  const std::string text = status_json(status_);
  try {
    replace_file(folder_ / "status.json", text);
  } catch (const FormatError&) {
    // No room for a second file: that the run has ended is said in the place of the first.
    if (status_.state == RunState::running) throw;
    write_in_place(text);
  }
  const auto end = Clock::now();
  next_status_ = std::max(next_status_, end + kStatusShare * (end - start));
}

void RunRecorder::write_in_place(const std::string& status) {
  const fs::path file = folder_ / "status.json";
  std::error_code ec;
  const uint64_t room = fs::file_size(file, ec);
  std::fstream out(file, std::ios::binary | std::ios::in | std::ios::out);
  out << status;
  if (!ec && status.size() < room) out << std::string(size_t(room - status.size()), ' ');
  if (!out.flush()) throw_format("cannot write {}", file.string());
}

void RunRecorder::write_record() {
  for (RunFile& f : record_.files) {
    if (const auto hash = hashes_.result(f.path)) f.sha256 = *hash;
  }
  record_.memory = {};
  record_.memory.peak_rss_bytes = process_peak_bytes();
  if (memory_.of_gpu() && memory_.peak()) {
    record_.memory.peak_gpu_mib = memory_.peak()->pid_mib;
  }
  for (const auto& a : memory_.arena_sizes()) {
    record_.memory.arenas.emplace_back(a.name, a.peak_bytes);
  }
  if (warnings_) record_.warnings = warnings_->all();
  record_.collapses.clear();
  for (const CollapseEvent& e : read_collapses(folder_)) record_.collapses.push_back(e.text());
  record_.gates = read_gates(folder_);
  if (record_.gates.size() > 2) record_.gates = {record_.gates.front(), record_.gates.back()};
  replace_file(folder_ / "run.json", record_json(record_));
}

void RunRecorder::device(std::string name) {
  record_.device = std::move(name);
  attempt([&] { write_record(); });
}

RunFile& RunRecorder::add_file(std::string_view role, const fs::path& file) {
  std::error_code ec;
  RunFile f{std::string(role), fs::absolute(file).lexically_normal().string(), 0, ""};
  if (const auto bytes = fs::file_size(file, ec); !ec) f.bytes = bytes;
  return record_.files.emplace_back(std::move(f));
}

void RunRecorder::add_files(std::string_view role, const fs::path& path) {
  for (const fs::path& file : weight_files(path)) hashes_.add(add_file(role, file).path);
  attempt([&] { write_record(); });
}

void RunRecorder::input(std::string_view role, const InputFile& file) {
  RunFile& f = add_file(role, file.path());
  f.bytes = file.size();
  hashes_.add(f.path, file);
  attempt([&] { write_record(); });
}

void RunRecorder::input(std::string_view role, const fs::path& path, std::string sha256) {
  if (path.empty()) return;
  add_file(role, path).sha256 = std::move(sha256);
  attempt([&] { write_record(); });
}

std::string RunRecorder::hash_of(std::string_view role) {
  std::vector<std::string> hashes;
  for (RunFile& f : record_.files) {
    if (f.role != role) continue;
    if (f.sha256.empty()) f.sha256 = hashes_.wait_for(f.path);
    if (f.sha256.empty()) return "";
    hashes.push_back(f.sha256);
  }
  return hashes.size() == 1 ? hashes.front()
                            : sha256_hex(fmt::format("{}", fmt::join(hashes, " ")));
}

void RunRecorder::input(std::string_view role, const fs::path& path) {
  if (!path.empty()) add_files(role, path);
}

void RunRecorder::continue_from(const fs::path& folder, int64_t step, bool same_probes) {
  RunRecord before;
  try {
    before = read_record(folder);
  } catch (const Error& e) {
    log_warning("the record of the run that is gone on with cannot be read: {}", e.what());
    return;
  }
  record_.continues = before.name;
  record_.continued_at = step;
  attempt([&] {
    for_each_line_up_to(folder / "metrics.jsonl", step, [&](const std::string& line) {
      if (const auto r = parse_metrics_line(line)) {
        series_.add(*r);
        record_.totals.add(*r);
        status_.last = *r;
      } else if (const auto held_out = parse_held_out_line(line)) {
        series_.add_held_out(held_out->step, held_out->loss);
        record_.totals.add_held_out(held_out->step, held_out->loss);
        status_.held_out_step = held_out->step;
        status_.held_out_loss = held_out->loss;
      }
      metrics_->append_line(line);
    });
    for (const char* name : {"probes.jsonl", "replies.jsonl"}) {
      if (!same_probes) break;
      std::string lines;
      for_each_line_up_to(folder / name, step,
                          [&](const std::string& line) { lines += line + "\n"; });
      if (!lines.empty()) append_file(folder_ / name, lines);
    }
    write_status();
    write_record();
  });
}

uint64_t RunRecorder::gpu_bytes() const {
  if (!memory_.of_gpu() || memory_.samples().empty()) return 0;
  return uint64_t(std::max<int64_t>(0, memory_.samples().back().pid_mib)) << 20;
}

void RunRecorder::self_test(SelfTestRecord result) {
  record_.self_test = std::move(result);
  attempt([&] { write_record(); });
}

void RunRecorder::step(const StepRecord& record) {
  StepRecord r = record;
  if (r.rss_bytes == 0) r.rss_bytes = process_resident_bytes();
  if (r.tokens_per_second == 0 && r.seconds > 0) r.tokens_per_second = double(r.tokens) / r.seconds;
  const auto now = Clock::now();
  const double seconds = std::chrono::duration<double>(now - last_step_).count();
  last_step_ = now;
  // The first interval holds the loading; then a mean of about the last ten.
  const bool first = !std::exchange(stepped_, true);
  if (first) {
    step_seconds_ = r.seconds;
  } else {
    step_seconds_ += 0.1 * (seconds - step_seconds_);
  }
  if (events_) {
    attempt([&] {
      events_->step(r.step, {{"train/loss", r.loss},
                             {"train/loss_smoothed", r.smoothed_loss},
                             {"train/loss_taught", r.taught_loss},
                             {"train/loss_kept", r.kept_loss},
                             {"train/learning_rate", r.lr},
                             {"train/gradient_norm", r.grad_norm},
                             {"train/tokens_per_second", r.tokens_per_second},
                             {"memory/resident_bytes", double(r.rss_bytes)}});
    });
  }
  series_.add(r);
  record_.totals.add(r);
  status_.last = r;
  status_.eta_seconds = step_seconds_ * double(std::max<int64_t>(0, status_.steps - r.step));
  attempt([&] { metrics_->append(r); });
  if (first || now >= next_status_) attempt([&] { write_status(); });
  if (now - last_plots_ >= kPlotInterval) {
    last_plots_ = now;
    attempt([&] { metrics_->flush(); });
    attempt([&] { write_plots_and_memory(); });
    attempt([&] { write_record(); });
  }
}

void RunRecorder::held_out(int64_t step, double loss) {
  series_.add_held_out(step, loss);
  record_.totals.add_held_out(step, loss);
  status_.held_out_step = step;
  status_.held_out_loss = loss;
  attempt([&] {
    if (events_) events_->beside(step, {{"eval/loss", loss}});
    metrics_->append_held_out(step, loss);
    write_status();
    write_record();
  });
}

void RunRecorder::also_write_events_to(const fs::path& folder) {
  events_ = std::make_unique<EventFile>(folder);
}

void RunRecorder::gate(int64_t step, const std::vector<std::pair<std::string, double>>& percents) {
  if (!events_) return;
  EventFile::Curves curves;
  for (const auto& [group, percent] : percents) curves.emplace_back("probes/" + group, percent);
  attempt([&] { events_->beside(step, curves); });
}

void RunRecorder::phase(std::string_view name, int64_t step) {
  const int64_t n = steps_per_epoch_;
  const bool epochs = n > 0 && step > 0;  // steps count from 1, epochs from 0
  memory_.sample(name, epochs ? (step - 1) / n : 0, epochs ? (step - 1) % n + 1 : step, step);
}

void RunRecorder::checkpoint(const fs::path& path, const fs::path& model) {
  status_.checkpoint = fs::absolute(path).string();
  status_.checkpoint_model = model.empty() ? "" : fs::absolute(model).string();
  const auto start = Clock::now();
  // Where one save follows the other, flushing the record would take as long as saving: those in
  // between are named by the status of the steps to come.
  if (start < next_noted_checkpoint_) return;
  attempt([&] { metrics_->flush(); });
  attempt([&] { write_status(); });
  attempt([&] { write_record(); });
  const auto end = Clock::now();
  next_noted_checkpoint_ = end + kStatusShare * (end - start);
}

void RunRecorder::checkpoints_removed() {
  status_.checkpoint.clear();
  status_.checkpoint_model.clear();
}

void RunRecorder::exported(const fs::path& model) {
  status_.output = fs::absolute(model).string();
  attempt([&] { write_status(); });
  std::erase_if(record_.files, [](const RunFile& f) { return f.role == "output"; });
  add_files("output", model);
}

void RunRecorder::write_plots_and_memory() {
  if (memory_.of_gpu()) {
    series_.gpu_mib = ThinnedSeries();
    for (const MemorySample& m : memory_.samples()) {
      if (m.global_step > 0) series_.gpu_mib.add(double(m.global_step), double(m.pid_mib));
    }
  }
  write_plots(folder_, run_plots(series_, read_gates(folder_), record_.name));
  replace_file(folder_ / "memory.json", memory_.json());
}

void RunRecorder::finish(RunState state, std::string_view message,
                         std::optional<ExitCode> exit_code) {
  const bool bad = state == RunState::failed || state == RunState::collapsed;
  const int signal = state == RunState::interrupted ? InterruptGuard::signal() : 0;
  const ExitCode usual = bad          ? ExitCode::check_failed
                         : signal > 0 ? interrupted_by(signal)
                                      : ExitCode::ok;
  finish(state, message, exit_code.value_or(usual), std::numeric_limits<double>::infinity());
}

void RunRecorder::finish(RunState state, std::string_view message, ExitCode exit_code,
                         double hash_seconds) {
  if (finished_) return;
  finished_ = true;
  status_.state = state;
  status_.message = message;
  record_.exit_code = int(exit_code);
  record_.ended_utc = utc_now_text();
  if (state != RunState::interrupted)
    status_.eta_seconds = state == RunState::finished ? 0 : kNoValue;
  attempt([&] { metrics_->flush(); });
  attempt([&] { write_status(); });
  attempt([&] { write_record(); });  // before the hashes: whoever has no patience has a record
  attempt([&] { write_plots_and_memory(); });
  if (!extra_report_.empty()) attempt([&] { memory_.write(extra_report_); });
  if (std::isinf(hash_seconds)) {
    hashes_.wait();
  } else {
    hashes_.wait_at_most(hash_seconds);
  }
  attempt([&] { write_record(); });
  attempt([&] { write_report(folder_); });
}

void set_chain_place(std::optional<ChainPlace> place) { chain_place = std::move(place); }

void forget_failed_run() { failed_run[0] = 0; }

namespace {

// What a run that has ended is said to have ended by.
void explain_run(const fs::path& folder, std::optional<RunState> state, ExitCode code,
                 const std::string& message) {
  try {
    RunStatus status = read_status(folder);
    status.state = state.value_or(status.state);
    status.message = message;
    replace_file(folder / "status.json", status_json(status));
    auto j = parse_json<nlohmann::ordered_json>(read_text_file(folder / "run.json", 64 << 20));
    j["state"] = run_state_name(status.state);
    j["message"] = message;
    j["exit_code"] = int(code);
    replace_file(folder / "run.json",
                 j.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
    write_report(folder);
  } catch (const std::exception&) {  // the error itself is what matters, and it is being shown
  }
}

}  // namespace

void explain_failed_run(ExitCode code, const std::string& message) {
  const fs::path folder = failed_run;
  if (folder.empty()) return;
  forget_failed_run();
  explain_run(folder, std::nullopt, code, message);
}

void explain_killed_run(const fs::path& folder, ExitCode code, const std::string& message) {
  try {
    const RunState state = read_status(folder).state;
    if (state == RunState::running || state == RunState::interrupted) {
      explain_run(folder, RunState::interrupted, code, message);
    }
  } catch (const Error&) {  // it had not begun
  }
}

}  // namespace nibble
