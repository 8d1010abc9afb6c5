// SPDX-License-Identifier: MIT
// A thread that does one thing after the other, in the order in which they were given, while its
// owner does something else.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace nibble {

class WorkQueue {
 public:
  WorkQueue() = default;
  ~WorkQueue();  // everything is done first
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  // Its number; 1 is the first.
  uint64_t add(std::function<void()> work);
  // Until it and everything before it is done; 0: nothing. What one of them threw comes from here,
  // now and ever after, and what was given after it is not done.
  void wait(uint64_t number);
  void wait_for_all() { wait(given_); }
  // Seconds spent in wait(): what the work was not hidden behind.
  double waited_seconds() const { return waited_; }

 private:
  void run();

  std::thread thread_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  uint64_t given_ = 0;  // the owner's
  uint64_t done_ = 0;
  std::exception_ptr error_;
  bool closing_ = false;
  double waited_ = 0;
};

}  // namespace nibble
