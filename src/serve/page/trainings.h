// SPDX-License-Identifier: MIT
// Processes that train and check, and how the lessons behind them stand. What is said comes from
// the record of the run, so that a server that was started anew says the same.
#pragma once
#include <sys/types.h>

#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "guard/child_process.h"
#include "serve/page/lesson_store.h"

namespace nibble {

enum class LessonPhase { starting, running, ended, failed_to_start };

struct LessonStanding {
  LessonPhase phase = LessonPhase::ended;
  std::string state;          // as runs show it; "starting"
  std::string message;        // what went wrong
  std::filesystem::path run;  // its folder; empty: there is none yet

  bool goes_on() const { return phase == LessonPhase::starting || phase == LessonPhase::running; }
};

// What a training does before its first step, as its log says.
struct Preparing {
  std::string what;  // "loading", "replies": of what is kept
  int percent = 0;
  int64_t seconds_left = 0;
};
// None: the last line of the log is about something else.
std::optional<Preparing> preparing(const std::filesystem::path& log);

class Trainings {
 public:
  Trainings(ChildProgram program, std::filesystem::path runs)
      : program_(std::move(program)), runs_(std::move(runs)) {}

  const ChildProgram& program() const { return program_; }
  void start(const std::string& lesson, const std::vector<std::string>& words,
             const std::filesystem::path& log);
  LessonStanding standing(const StoredLesson& lesson, const std::filesystem::path& log) const;
  // SIGINT: it ends its step, saves and ends. False: nothing runs.
  bool stop(const StoredLesson& lesson) const;

  // A check of what it cost, one at a time for each lesson.
  void start_check(const std::string& lesson, const std::vector<std::string>& words,
                   const std::filesystem::path& log);
  bool checking(const std::string& lesson) const;

 private:
  struct Child {
    pid_t pid = 0;
    std::optional<int> status;  // how it ended
  };
  // The child of this server, if there is one; collected when it has ended.
  const Child* child(std::map<std::string, Child>& all, const std::string& lesson) const;

  ChildProgram program_;
  std::filesystem::path runs_;
  mutable std::mutex mutex_;
  mutable std::map<std::string, Child> trainers_, checks_;
};

}  // namespace nibble
