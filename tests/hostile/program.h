// SPDX-License-Identifier: MIT
// The program as a process of its own, with whatever streams, limits and signals a test gives it.
#pragma once
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/file.h"
#include "support/paths.h"
#include "support/text.h"
#include "support/toy_dir.h"

namespace nibble::test {

using Words = std::vector<std::string>;

struct Ended {
  int code = 0;  // 1000 + N: signal N killed it
  std::string out, err;
};

class Program {
 public:
  // Standard input is /dev/null, output and errors go to files. `in_child` runs just before the
  // program and may change all that.
  explicit Program(const Words& args, const std::function<void()>& in_child = {}) {
    Words words = {kNibblePath};
    words.insert(words.end(), args.begin(), args.end());
    std::vector<char*> argv;
    for (std::string& w : words) argv.push_back(w.data());
    argv.push_back(nullptr);
    for (const char* name : {"out", "err"}) write_text_file_atomic(dir_.file(name), "");
    pid_ = ::fork();
    if (pid_ != 0) return;
    redirect("/dev/null", O_RDONLY, 0);
    redirect(dir_.file("out"), O_WRONLY | O_CREAT | O_TRUNC, 1);
    redirect(dir_.file("err"), O_WRONLY | O_CREAT | O_TRUNC, 2);
    if (in_child) in_child();
    ::execv(argv[0], argv.data());
    std::_Exit(127);
  }
  ~Program() {
    if (!waited_) ::kill(pid_, SIGKILL), wait();
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  static void redirect(const std::string& file, int flags, int to) {
    ::dup2(::open(file.c_str(), flags, 0644), to);
  }

  pid_t pid() const { return pid_; }
  void signal(int number) const { ::kill(pid_, number); }
  bool running() const {
    siginfo_t info{};
    ::waitid(P_PID, id_t(pid_), &info, WEXITED | WNOHANG | WNOWAIT);
    return info.si_pid == 0;
  }
  // Until `there()` or the program's end; true: it came to be while the program ran.
  bool runs_until(const std::function<bool()>& there) const {
    while (running()) {
      if (there()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }
  std::string err() const { return read_text_file(dir_.file("err")); }
  Ended wait() {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    waited_ = true;
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
    return {code, read_text_file(dir_.file("out")), err()};
  }

 private:
  TemporaryDirectory dir_{"program"};
  pid_t pid_ = -1;
  bool waited_ = false;
};

inline Ended run_program(const Words& args, const std::function<void()>& in_child = {}) {
  return Program(args, in_child).wait();
}

// A toy model in m/ for all tests of a suite, and a directory for each.
class HostileTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    shared_ = new TemporaryDirectory("hostile");
    write_toy_directory(shared_->path() / "m");
    replace_file(shared_->path() / "pairs.tsv", "hello\tgood day\nwho are you\tnibble\nhi\tyes\n");
  }
  static void TearDownTestSuite() {
    delete shared_;
    shared_ = nullptr;
  }
  static std::string model() { return shared_->file("m"); }
  static std::string pairs() { return shared_->file("pairs.tsv"); }

  std::string file(const std::string& name) const { return dir_.file(name); }
  std::string write(const std::string& name, const std::string& text) const {
    const std::filesystem::path path = file(name);
    std::filesystem::create_directories(path.parent_path());
    replace_file(path, text);
    return path.string();
  }
  std::string copy_of_model(const std::string& name) const {
    std::filesystem::copy(model(), file(name));
    return file(name);
  }
  Words train_words(const Words& more) const {
    const std::pair<const char*, std::string> usual[] = {
        {"--model", model()},  {"--train-data", pairs()},  {"--seq-len", "64"},
        {"--threads", "1"},    {"--self-test", "false"},   {"--runs-dir", file("runs")},
        {"--run-name", "run"}, {"--sample-mode", "random"}};
    Words words = {"train"};
    for (const auto& [flag, value] : usual) {
      if (std::ranges::find(more, flag) == more.end()) words.insert(words.end(), {flag, value});
    }
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  bool trained_some_steps() const {
    std::error_code ec;
    return std::filesystem::file_size(file("runs/run/metrics.jsonl"), ec) > 1000 && !ec;
  }

  static inline TemporaryDirectory* shared_ = nullptr;
  TemporaryDirectory dir_{"hostile-test"};
};

}  // namespace nibble::test
