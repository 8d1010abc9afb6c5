// SPDX-License-Identifier: MIT
#include "serve/http/connection_threads.h"

#include <system_error>
#include <thread>

namespace nibble {
namespace {

thread_local bool t_full = false;

}  // namespace

bool ConnectionThreads::full() { return t_full; }

void ConnectionThreads::enqueue(std::function<void()> work) {
  bool room = false;
  {
    const std::lock_guard lock(mutex_);
    room = running_ < most_;
    running_ += room;
  }
  if (room) {
    try {
      std::thread([this, work] {
        work();
        const std::lock_guard lock(mutex_);
        --running_;
        idle_.notify_all();
      }).detach();
      return;
    } catch (const std::system_error&) {  // the machine has no thread left
      const std::lock_guard lock(mutex_);
      --running_;
    }
  }
  t_full = true;
  work();
  t_full = false;
}

void ConnectionThreads::shutdown() {
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [&] { return running_ == 0; });
}

}  // namespace nibble
