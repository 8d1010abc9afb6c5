// SPDX-License-Identifier: MIT
#include "core/thread_pool.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <stdexcept>
#include <thread>
#include <vector>

#include "core/error.h"

namespace nibble {
namespace {

TEST(ThreadPoolTest, EveryIndexOnceInWholeGrains) {
  for (const int threads : {1, 2, 4}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.size(), threads);
    for (const int64_t n : {0, 1, 7, 8, 9, 1000}) {
      for (const int64_t grain : {-1, 1, 8, 5000}) {
        std::vector<std::atomic<int>> seen(size_t(n) + 1);
        std::atomic<int> bad{0};
        pool.parallel_for(n, grain, [&](int64_t begin, int64_t end, int thread) {
          if (begin >= end || thread < 0 || thread >= pool.size()) ++bad;
          for (int64_t i = begin; i < end; ++i) ++seen[size_t(i)];
        });
        EXPECT_EQ(bad, 0);
        for (int64_t i = 0; i < n; ++i) ASSERT_EQ(seen[size_t(i)], 1) << i << " of " << n;
        EXPECT_EQ(seen[size_t(n)], 0);
      }
    }
  }
}

TEST(ThreadPoolTest, RangesStartAtMultiplesOfTheGrain) {
  ThreadPool pool(3);
  std::atomic<int> bad{0};
  pool.parallel_for(1003, 10, [&](int64_t begin, int64_t end, int) {
    if (begin % 10 != 0 || (end - begin != 10 && end != 1003)) ++bad;
  });
  EXPECT_EQ(bad, 0);
}

TEST(ThreadPoolTest, ManyShortRegions) {
  ThreadPool pool(4);
  std::atomic<int64_t> sum{0};
  for (int i = 0; i < 3000; ++i) {
    pool.parallel_for(16, 1, [&](int64_t begin, int64_t end, int) { sum += end - begin; });
    ASSERT_EQ(sum, int64_t(i + 1) * 16) << "a region ends when all of it is done";
  }
}

TEST(ThreadPoolTest, TheFirstExceptionComesBackAndThePoolStaysUsable) {
  for (const int threads : {1, 4}) {
    ThreadPool pool(threads);
    for (int round = 0; round < 50; ++round) {
      EXPECT_THROW(pool.parallel_for(100, 1,
                                     [](int64_t begin, int64_t, int) {
                                       if (begin % 7 == 0) throw std::runtime_error("x");
                                     }),
                   std::runtime_error);
      std::atomic<int64_t> n{0};
      pool.parallel_for(100, 3, [&](int64_t begin, int64_t end, int) { n += end - begin; });
      EXPECT_EQ(n, 100);
    }
  }
}

TEST(ThreadPoolTest, PlainWritesAreVisibleAfterTheRegion) {
  ThreadPool pool(4);
  std::vector<int64_t> v(10000);
  for (int64_t round = 1; round <= 50; ++round) {
    pool.parallel_for(10000, 64, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) v[size_t(i)] += round * i;
    });
  }
  for (int64_t i = 0; i < 10000; ++i) ASSERT_EQ(v[size_t(i)], i * 1275);
}

#if !defined(__SANITIZE_THREAD__)  // which keeps signals back until a thread makes a call
// Where the parked worker says that it is parked, and waits for a byte.
std::atomic<bool> parked{false};
int parking[2];
void park(int) {
  parked = true;
  char byte;
  while (read(parking[0], &byte, 1) < 0 && errno == EINTR) {
  }
}

// Other programs may hold the cores for long: a worker that does not run is not waited for. Here it
// is held in a signal handler, so that nothing depends on the scheduler.
TEST(ThreadPoolTest, AWorkerThatDoesNotRunHoldsNothingUp) {
  ThreadPool pool(2);
  std::atomic<int> arrived{0};
  std::atomic<pthread_t> worker{};
  const auto together = [&] {  // both threads are in the region at once
    arrived = 0;
    pool.parallel_for(2, 1, [&](int64_t, int64_t, int thread) {
      if (thread != 0) worker = pthread_self();
      for (++arrived; arrived < 2;) std::this_thread::yield();
    });
  };
  together();
  ASSERT_EQ(pipe(parking), 0);
  struct sigaction action = {}, before = {};
  action.sa_handler = park;
  ASSERT_EQ(sigaction(SIGUSR1, &action, &before), 0);
  ASSERT_EQ(pthread_kill(worker, SIGUSR1), 0);
  while (!parked) std::this_thread::yield();

  // Should the region wait after all, the worker is let go in the end, and the test fails.
  std::atomic<bool> done{false}, let_go{false};
  std::thread rescue([&] {
    for (int i = 0; i < 2000 && !done; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    let_go = !done;
    EXPECT_EQ(write(parking[1], "x", 1), 1);
  });
  int64_t by_main = 0;
  for (int round = 0; round < 100; ++round) {
    pool.parallel_for(16, 1, [&](int64_t begin, int64_t end, int thread) {
      if (thread == 0) by_main += end - begin;
    });
  }
  done = true;
  rescue.join();
  EXPECT_FALSE(let_go) << "a region waited for a worker that was not part of it";
  EXPECT_TRUE(let_go || by_main == 1600) << by_main;
  together();  // it is back
  sigaction(SIGUSR1, &before, nullptr);
  close(parking[0]);
  close(parking[1]);
}
#endif

TEST(ThreadPoolTest, DefaultCountIsPositive) { EXPECT_GE(default_thread_count(), 1); }

}  // namespace
}  // namespace nibble

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// In a child process, because the limit on address space stays. Each thread reserves its stack.
TEST(ThreadPoolDeathTest, ThreadsThatCannotStartAreADeviceError) {
  const auto starve = [] {
    const rlimit limit{256 << 20, 256 << 20};
    setrlimit(RLIMIT_AS, &limit);
    try {
      nibble::ThreadPool pool(1024);
    } catch (const nibble::DeviceError& e) {
      std::_Exit(int(e.code()));
    }
    std::_Exit(0);
  };
  EXPECT_EXIT(starve(), testing::ExitedWithCode(4), "");
}
#endif
