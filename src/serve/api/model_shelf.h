// SPDX-License-Identifier: MIT
// The models a server has: the one it was started with, and at most one more, which comes and goes
// while requests run.
#pragma once
#include <memory>
#include <mutex>

#include "serve/api/api_call.h"
#include "serve/api/running_model.h"

namespace nibble {

class ModelShelf {
 public:
  explicit ModelShelf(RunningModel& first) : first_(first) {}  // which outlives it

  // The API of whichever model the request names; the first where it names none.
  ApiResponse answer(const ApiCall& call) const;

  RunningModel& first() const { return first_; }
  std::shared_ptr<RunningModel> second() const;  // null: there is none
  // Instead of the one before, which goes when its last reply has ended.
  void put(std::shared_ptr<RunningModel> second);
  // Both take no more requests; what runs has `at_most`, and then ends with an error.
  void end(std::chrono::milliseconds at_most);

 private:
  ApiResponse list(const RunningModel& second, const ApiCall& call) const;

  RunningModel& first_;
  mutable std::mutex mutex_;
  std::shared_ptr<RunningModel> second_;
};

}  // namespace nibble
