// SPDX-License-Identifier: MIT
// A thread for each connection, up to a limit: most of them wait for tokens, and one that waits
// must not keep another from being refused. Beyond the limit the thread that accepts does the work
// itself, and is told to be short.
#pragma once
#include <httplib.h>

#include <condition_variable>
#include <functional>
#include <mutex>

namespace nibble {

class ConnectionThreads final : public httplib::TaskQueue {
 public:
  explicit ConnectionThreads(size_t most) : most_(most) {}
  void enqueue(std::function<void()> work) override;
  void shutdown() override;  // waits for all
  // Whether this thread is the one that accepts: whoever came is to be refused.
  static bool full();

 private:
  size_t most_;
  std::mutex mutex_;
  std::condition_variable idle_;
  size_t running_ = 0;
};

}  // namespace nibble
