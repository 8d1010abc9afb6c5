// SPDX-License-Identifier: MIT
// A program for the tests of `nibble guard`: takes memory, forks, daemonises, ends in many ways.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace {

// Memory that is really there: one byte of each page is written.
volatile char* take(long mib) {
  const size_t n = size_t(mib) << 20;
  auto* p = static_cast<volatile char*>(std::malloc(n));
  for (size_t i = 0; p && i < n; i += 4096) p[i] = 1;
  return p;
}

void sleep_seconds(double s) { std::this_thread::sleep_for(std::chrono::duration<double>(s)); }

int hold(long mib, double seconds) {
  take(mib);
  sleep_seconds(seconds);
  return 0;
}

void daemon_that_holds(long mib, double seconds) {
  if (::fork() == 0) {
    ::setsid();
    if (::fork() == 0) std::_Exit(hold(mib, seconds));
    std::_Exit(0);
  }
  ::wait(nullptr);
}

volatile std::sig_atomic_t g_interrupted = 0;
extern "C" void note(int) { g_interrupted = 1; }

int run(const std::string& action, const std::vector<double>& a) {
  const long mib = a.empty() ? 0 : long(a[0]);
  if (action == "exit") return int(a.at(0));
  if (action == "raise") return std::raise(int(a.at(0)));
  if (action == "hold") return hold(mib, a.at(1));
  if (action == "hold-stubborn") {
    for (const int s : {SIGTERM, SIGINT, SIGHUP}) std::signal(s, SIG_IGN);
    return hold(mib, a.at(1));
  }
  if (action == "grow-stubborn") {  // ever more, whatever it is told
    for (const int s : {SIGTERM, SIGINT, SIGHUP}) std::signal(s, SIG_IGN);
    for (int i = 0; i < 400; ++i) {
      take(4);
      sleep_seconds(0.01);
    }
    return hold(0, 60);
  }
  if (action == "memfd") {  // written, not mapped: in no resident set
    const int fd = ::memfd_create("held", 0);
    const std::vector<char> block(1 << 20, 1);
    for (long i = 0; i < mib; ++i) {
      if (::write(fd, block.data(), block.size()) != ssize_t(block.size())) return 98;
    }
    if (a.size() > 2) {  // the same pages mapped: resident, and not counted again
      auto* p = static_cast<volatile char*>(
          ::mmap(nullptr, size_t(mib) << 20, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
      for (size_t i = 0; i < size_t(mib) << 20; i += 4096) p[i] = 2;
    }
    sleep_seconds(a.at(1));
    return 0;
  }
  if (action == "spikes") {  // six times MIB for SECONDS, then nothing for as long
    for (int i = 0; i < 6; ++i) {
      auto* p = take(mib);
      sleep_seconds(a.at(1));
      std::free(const_cast<char*>(p));
      sleep_seconds(a.at(1));
    }
    return 0;
  }
  if (action == "tree") {  // four processes; three of them hold MIB each, one is a daemon
    if (::fork() == 0) {
      if (::fork() == 0) std::_Exit(hold(mib, a.at(1)));
      std::_Exit(hold(mib, a.at(1)));
    }
    daemon_that_holds(mib, a.at(1));
    sleep_seconds(a.at(1));
    return 0;
  }
  if (action == "daemon") {  // ends at once, its daemon does not
    daemon_that_holds(mib, a.at(1));
    return 5;
  }
  if (action == "shared") {  // children that share what the parent has
    take(mib);
    for (int i = 0; i < 4; ++i) {
      if (::fork() == 0) {
        sleep_seconds(a.at(1));
        std::_Exit(0);
      }
    }
    while (::wait(nullptr) > 0) continue;
    return 0;
  }
  if (action == "forks") {  // ever new processes, each gone before it can be looked at
    for (;;) {
      if (const pid_t p = ::fork(); p != 0) std::_Exit(p < 0);
      ::usleep(2000);
    }
  }
  if (action == "headless") {  // its first thread ends, the others hold the memory
    std::thread([=] { std::_Exit(hold(mib, a.at(1))); }).detach();
    ::pthread_exit(nullptr);
  }
  if (action == "sigpipe") return std::signal(SIGPIPE, SIG_DFL) == SIG_DFL ? 0 : 1;
  if (action == "tidy") {  // on SIGINT it takes its time and ends properly
    std::signal(SIGINT, note);
    while (!g_interrupted) ::usleep(10000);
    sleep_seconds(a.at(0));
    return 7;
  }
  if (action == "kill-group") return ::kill(0, SIGKILL);
  return 99;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<double> numbers;
  for (int i = 2; i < argc; ++i) numbers.push_back(std::atof(argv[i]));
  return argc < 2 ? 99 : run(argv[1], numbers);
}
