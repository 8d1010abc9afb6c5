// SPDX-License-Identifier: MIT
// Ranks that are threads of one process: all that ranks do can be tested where there is no MPI.
#pragma once
#include <condition_variable>
#include <cstring>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "comm/comm.h"
#include "comm/wait_limit.h"

namespace nibble::test {

class ThreadRanks {
 public:
  explicit ThreadRanks(int size, double limit_seconds = 120)
      : limit_(limit_seconds), size_(size), channels_(3, std::vector<Post>(size_t(size))) {}

  // Called by each rank before each exchange beside (Comm::beside); may wait.
  std::function<void(int rank)> before_beside;

  // `body` as every rank at once; what the first of them throws comes from here. One that throws
  // ends the waiting of the others.
  void run(const std::function<void(Comm&)>& body) {
    std::vector<std::thread> threads;
    std::exception_ptr first;
    for (int r = 0; r < size_; ++r) {
      threads.emplace_back([&, r] {
        One one(*this, r, 0);
        try {
          body(one);
        } catch (...) {
          const std::lock_guard lock(mutex_);
          if (!first) first = std::current_exception();
          ended_ = true;
          changed_.notify_all();
        }
      });
    }
    for (std::thread& t : threads) t.join();
    if (first) std::rethrow_exception(first);
  }

 private:
  struct Post {
    std::span<const ConstBytes> to;
    int64_t arrived = 0, left = 0;  // exchanges this rank has come to, and is done with
  };
  class One final : public Comm {
   public:
    One(ThreadRanks& all, int rank, size_t channel)
        : Comm(rank, all.size_), all_(all), channel_(channel) {}
    std::string name() const override { return "threads"; }
    std::string host(int) const override { return "here"; }

   private:
    std::unique_ptr<Comm> make_beside(size_t which) override {
      return std::make_unique<One>(all_, rank(), 1 + which);
    }
    void do_exchange(std::span<const ConstBytes> to, std::span<const Bytes> from) override {
      if (channel_ > 0 && all_.before_beside) all_.before_beside(rank());
      all_.exchange(*this, all_.channels_.at(channel_), limited(), to, from);
    }
    ThreadRanks& all_;
    size_t channel_;
  };

  void exchange(const Comm& me, std::vector<Post>& posts, bool limited,
                std::span<const ConstBytes> to, std::span<const Bytes> from) {
    Post& own = posts[size_t(me.rank())];
    {
      const std::lock_guard lock(mutex_);
      own.to = to;
      ++own.arrived;
      changed_.notify_all();
    }
    wait(me, posts, limited, [&](const Post& p) { return p.arrived >= own.arrived; });
    for (size_t r = 0; r < posts.size(); ++r) {
      if (int(r) == me.rank()) continue;
      const ConstBytes sent = posts[r].to[size_t(me.rank())];
      if (sent.size() != from[r].size()) {
        throw_internal("rank {} sends {} bytes where {} expects {}, at {}", r, sent.size(),
                       me.rank(), from[r].size(), me.where());
      }
      if (!sent.empty()) std::memcpy(from[r].data(), sent.data(), sent.size());
    }
    {
      const std::lock_guard lock(mutex_);
      ++own.left;
      changed_.notify_all();
    }
    wait(me, posts, limited, [&](const Post& p) { return p.left >= own.left; });
  }

  void wait(const Comm& me, const std::vector<Post>& posts, bool me_is_limited,
            const std::function<bool(const Post&)>& come) {
    std::unique_lock lock(mutex_);
    std::vector<int> missing;
    const auto all_came = [&] {
      missing.clear();
      for (size_t r = 0; r < posts.size(); ++r) {
        if (!come(posts[r])) missing.push_back(int(r));
      }
      return missing.empty() || ended_;
    };
    if (!me_is_limited) {
      changed_.wait(lock, all_came);
      if (!missing.empty()) throw_missing(me, missing, limit_);
      return;
    }
    const bool in_time = changed_.wait_for(lock, std::chrono::duration<double>(limit_), all_came);
    if (!in_time || !missing.empty()) throw_missing(me, missing, limit_);
  }

  double limit_;
  int size_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::vector<Post>> channels_;  // what is said, and what is said beside
  bool ended_ = false;
};

}  // namespace nibble::test
