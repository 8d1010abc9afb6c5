// SPDX-License-Identifier: MIT
#include "comm/work_queue.h"

#include <chrono>
#include <system_error>

#include "core/error.h"

namespace nibble {

WorkQueue::~WorkQueue() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

uint64_t WorkQueue::add(std::function<void()> work) {
  if (!thread_.joinable()) {
    try {
      thread_ = std::thread([this] { run(); });
    } catch (const std::system_error& e) {
      throw_device("the thread that talks to other ranks could not be started ({})", e.what());
    }
  }
  const std::lock_guard lock(mutex_);
  queue_.push_back(std::move(work));
  changed_.notify_all();
  return ++given_;
}

void WorkQueue::wait(uint64_t number) {
  std::unique_lock lock(mutex_);
  if (done_ < number && !error_) {
    const auto start = std::chrono::steady_clock::now();
    changed_.wait(lock, [&] { return done_ >= number || error_; });
    waited_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  if (error_) std::rethrow_exception(error_);
}

void WorkQueue::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return closing_ || !queue_.empty(); });
    if (queue_.empty()) return;
    const std::function<void()> work = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    std::exception_ptr thrown;
    try {
      work();
    } catch (...) {
      thrown = std::current_exception();
    }
    lock.lock();
    ++done_;
    if (thrown) {
      error_ = thrown;
      queue_.clear();
    }
    changed_.notify_all();
    if (error_) return;
  }
}

}  // namespace nibble
