// SPDX-License-Identifier: MIT
#include "serve/page/trainings.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <span>

#include "core/error.h"
#include "core/file.h"
#include "guard/process_tree.h"
#include "runlog/run_status.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;

constexpr size_t kLastWords = 2000;  // bytes of a log that are shown

std::string tail_of(const fs::path& log) {
  std::error_code ec;
  if (!fs::is_regular_file(log, ec)) return "";
  const InputFile file(log);
  const uint64_t read = std::min<uint64_t>(file.size(), 2 * kLastWords);  // it ends in line ends
  std::string text(size_t(read), '\0');
  file.read(file.size() - read, std::as_writable_bytes(std::span(text)));
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

// What a program that failed said last.
std::string end_of_log(const fs::path& log) {
  std::string text = tail_of(log);
  if (text.size() <= kLastWords) return text;
  const size_t line = text.find('\n', text.size() - kLastWords);
  return line == text.npos ? text.substr(text.size() - kLastWords) : text.substr(line + 1);
}

}  // namespace

// As core/progress writes it: "  5 %, 684 s left: replies to ...".
std::optional<Preparing> preparing(const fs::path& log) {
  const std::string text = tail_of(log);
  Preparing p;
  long long left = 0;
  char what[16] = "";
  const std::string line = text.substr(text.rfind('\n') + 1);
  if (std::sscanf(line.c_str(), "%d %%, %lld s left: %15[a-z]", &p.percent, &left, what) != 3)
    return std::nullopt;
  p.what = what;
  p.seconds_left = left;
  if (p.percent >= 100 || (p.what != "loading" && p.what != "replies")) return std::nullopt;
  return p;
}

const Trainings::Child* Trainings::child(std::map<std::string, Child>& all,
                                         const std::string& lesson) const {
  const auto at = all.find(lesson);
  if (at == all.end()) return nullptr;
  if (!at->second.status) at->second.status = collect_child(at->second.pid);
  return &at->second;
}

void Trainings::start(const std::string& lesson, const std::vector<std::string>& words,
                      const fs::path& log) {
  const std::lock_guard lock(mutex_);
  child(trainers_, lesson);  // collects the one before
  trainers_[lesson] = {start_detached(program_, words, log), {}};
}

LessonStanding Trainings::standing(const StoredLesson& l, const fs::path& log) const {
  bool started_here = false, lives = false;
  {
    const std::lock_guard lock(mutex_);
    const Child* const c = child(trainers_, l.name);
    started_here = c != nullptr;
    lives = c && !c->status;
  }
  const fs::path run = runs_ / l.runs.back();
  std::error_code ec;
  if (!fs::exists(run / "status.json", ec)) {
    if (lives) return {LessonPhase::starting, "starting", "", {}};
    return {LessonPhase::failed_to_start,
            "failed",
            started_here ? end_of_log(log) : "it did not begin: " + end_of_log(log),
            {}};
  }
  const RunStatus s = read_status(run);
  // The record says the end before its program has let go of the output, which whoever goes on
  // wants to have.
  if (process_of(s) ||
      (s.state == RunState::running && process_state(run, s) != ProcessState::gone))
    return {LessonPhase::running, "running", "", run};
  if (s.state != RunState::running)
    return {LessonPhase::ended, std::string(run_state_name(s.state)), s.message, run};
  return {LessonPhase::ended, "gone", end_of_log(log), run};
}

bool Trainings::stop(const StoredLesson& l) const {
  std::error_code ec;
  const fs::path run = runs_ / l.runs.back();
  if (fs::exists(run / "status.json", ec)) {
    const RunStatus s = read_status(run);
    const auto p = process_of(s);
    const bool goes_on =
        p && s.state == RunState::running && process_state(run, s) == ProcessState::alive;
    if (goes_on) send_signal(*p, SIGINT);
    return goes_on;
  }
  const std::lock_guard lock(mutex_);
  const Child* const c = child(trainers_, l.name);
  const auto p = c && !c->status ? read_process(c->pid) : std::nullopt;
  if (p) send_signal(*p, SIGINT);
  return p.has_value();
}

void Trainings::start_check(const std::string& lesson, const std::vector<std::string>& words,
                            const fs::path& log) {
  const std::lock_guard lock(mutex_);
  const Child* const c = child(checks_, lesson);
  if (c && !c->status) return;
  checks_[lesson] = {start_detached(program_, words, log), {}};
}

bool Trainings::checking(const std::string& lesson) const {
  const std::lock_guard lock(mutex_);
  const Child* const c = child(checks_, lesson);
  return c && !c->status;
}

}  // namespace nibble
