// SPDX-License-Identifier: MIT
#include "core/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <system_error>
#include <utility>

#include "core/error.h"

namespace nibble {
namespace {

void cpu_relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Long enough to bridge the serial code between two regions, short enough not to burn a core
// while a person types.
constexpr auto kSpinTime = std::chrono::microseconds(100);

// Spins, then sleeps, until `value` differs from `old`.
template <class T>
void wait_for_change(const std::atomic<T>& value, T old) {
  const auto give_up = std::chrono::steady_clock::now() + kSpinTime;
  do {
    for (int i = 0; i < 32; ++i) {
      if (value.load(std::memory_order_acquire) != old) return;
      cpu_relax();
    }
  } while (std::chrono::steady_clock::now() < give_up);
  value.wait(old, std::memory_order_acquire);
}

}  // namespace

ThreadPool::ThreadPool(int threads) {
  try {
    for (int t = 1; t < threads; ++t) workers_.emplace_back([this, t] { worker_loop(t); });
  } catch (const std::system_error& e) {
    const int started = size();
    stop();
    throw_device("only {} of {} threads could be started ({}); use fewer with --threads", started,
                 threads, e.what());
  }
}

ThreadPool::~ThreadPool() { stop(); }

void ThreadPool::stop() {
  stop_ = true;
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();
  for (std::thread& t : workers_) t.join();
  workers_.clear();
}

void ThreadPool::work(int thread) {
  for (;;) {
    const int64_t begin = next_.fetch_add(job_.grain, std::memory_order_relaxed);
    if (begin >= job_.n) return;
    try {
      job_.invoke(job_.body, begin, std::min(job_.n, begin + job_.grain), thread);
    } catch (...) {
      if (!failed_.exchange(true)) error_ = std::current_exception();
      return;
    }
  }
}

void ThreadPool::dispatch(int64_t n, int64_t grain, void* body, Invoke invoke) {
  const std::lock_guard turn(turn_);
  job_ = {invoke, body, n, grain};
  next_.store(0, std::memory_order_relaxed);
  joined_.store(kOpen, std::memory_order_release);
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();
  work(0);
  // Every range is taken. Whoever has not joined yet would find nothing to do.
  joined_.fetch_and(~kOpen, std::memory_order_acq_rel);
  for (uint32_t left = joined_.load(std::memory_order_acquire); left != 0;
       left = joined_.load(std::memory_order_acquire)) {
    wait_for_change(joined_, left);
  }
  if (failed_.exchange(false)) std::rethrow_exception(std::exchange(error_, nullptr));
}

// Whether there is a job to take part in. From then on job_ stays as it is until leave().
bool ThreadPool::join() {
  uint32_t now = joined_.load(std::memory_order_relaxed);
  while (now & kOpen) {
    if (joined_.compare_exchange_weak(now, now + 1, std::memory_order_acquire,
                                      std::memory_order_relaxed)) {
      return true;
    }
  }
  return false;
}

void ThreadPool::leave() {
  // The last one out of a closed job is waited for.
  if (joined_.fetch_sub(1, std::memory_order_release) == 1) joined_.notify_one();
}

void ThreadPool::worker_loop(int thread) {
  uint32_t seen = 0;
  for (;;) {
    wait_for_change(epoch_, seen);
    seen = epoch_.load(std::memory_order_acquire);  // before join(): a job after it is noticed
    if (stop_) return;
    if (!join()) continue;
    work(thread);
    leave();
  }
}

int default_thread_count() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, int(std::thread::hardware_concurrency()));
}

}  // namespace nibble
