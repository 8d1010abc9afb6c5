// SPDX-License-Identifier: MIT
// What a lesson will take, before it starts: memory as `nibble plan` says, and about how long.
#pragma once
#include <filesystem>
#include <mutex>
#include <nlohmann/json_fwd.hpp>

#include "guard/child_process.h"
#include "serve/api/running_model.h"
#include "serve/page/lesson_commands.h"

namespace nibble {

// Tokens of a sample that are fed at most: the longest row, with room for replies that are kept.
// Throws ApiError where a row is longer than the model's positions.
int64_t window_of(const Lesson& lesson, const RunningModel& base);

class LessonPlanner {
 public:
  LessonPlanner(const RunningModel& first, std::filesystem::path runs)
      : base_(first), runs_(std::move(runs)) {}
  // Throws ApiError.
  nlohmann::ordered_json plan(const Lesson& lesson, const LessonBase& base,
                              const ChildProgram& program) const;

 private:
  struct Speed {
    double tokens_per_second = 0;
    std::string basis;  // "run": an earlier one of this model; "guess": from this server's prompts
  };
  Speed speed(const LessonBase& base) const;
  double prompt_speed() const;

  const RunningModel& base_;
  std::filesystem::path runs_;
  mutable std::mutex mutex_;
  mutable double guess_ = 0;  // tokens of a prompt a second; 0: not measured yet
};

}  // namespace nibble
