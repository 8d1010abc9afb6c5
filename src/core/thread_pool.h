// SPDX-License-Identifier: MIT
// A fixed set of threads for short parallel regions. One token of a small model is about two
// hundred such regions, so workers spin briefly before they sleep. A region waits for the workers
// that took part in it and for no others: one that gets no core, because other programs hold them,
// is not missed.
#pragma once
#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace nibble {

class ThreadPool {
 public:
  explicit ThreadPool(int threads);  // counts the calling thread
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return int(workers_.size()) + 1; }

  // Calls body(begin, end, thread) on disjoint ranges that cover [0, n); returns when all are
  // done. Ranges hold `grain` indices (the last one fewer) and go to whichever thread is free, so
  // a body must give the same result however the ranges fall. Not reentrant; regions that
  // several threads begin take turns. `body` may throw: the first exception is rethrown here.
  template <class Body>
  void parallel_for(int64_t n, int64_t grain, Body&& body) {
    if (n <= 0) return;
    if (grain < 1) grain = 1;
    if (workers_.empty() || n <= grain) {
      body(int64_t(0), n, 0);
      return;
    }
    using B = std::remove_reference_t<Body>;
    dispatch(n, grain, const_cast<void*>(static_cast<const void*>(&body)),
             [](void* b, int64_t begin, int64_t end, int thread) {
               (*static_cast<B*>(b))(begin, end, thread);
             });
  }

 private:
  using Invoke = void (*)(void*, int64_t, int64_t, int);
  struct Job {
    Invoke invoke = nullptr;
    void* body = nullptr;
    int64_t n = 0, grain = 1;
  };
  void dispatch(int64_t n, int64_t grain, void* body, Invoke invoke);
  void work(int thread);
  bool join();
  void leave();
  void stop();
  void worker_loop(int thread);

  std::vector<std::thread> workers_;
  std::mutex turn_;  // of who begins a region
  Job job_;
  std::atomic<int64_t> next_{0};
  alignas(64) std::atomic<uint32_t> epoch_{0};  // counts jobs; idle workers wait for the next
  // Workers that have joined the job, and kOpen while more may. job_ is written only when it is 0.
  alignas(64) std::atomic<uint32_t> joined_{0};
  static constexpr uint32_t kOpen = uint32_t(1) << 31;
  std::atomic<bool> stop_{false};
  std::atomic<bool> failed_{false};
  std::exception_ptr error_;
};

// Physical parallelism to use when the user did not say: the CPUs this process may run on.
int default_thread_count();

}  // namespace nibble
