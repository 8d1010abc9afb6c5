// SPDX-License-Identifier: MIT
// What stays of files when programs are killed, write at the same time, or mean harm.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <functional>
#include <thread>

#include "core/durable/directories.h"
#include "core/durable/file_lock.h"
#include "core/durable/last_words.h"
#include "core/durable/temporary.h"
#include "core/error.h"
#include "core/file.h"

namespace nibble::test {
namespace {

namespace fs = std::filesystem;

class DurableTest : public ::testing::Test {
 protected:
  DurableTest() {
    std::string name = (fs::temp_directory_path() / "nibble-durable-XXXXXX").string();
    dir_ = ::mkdtemp(name.data());
  }
  ~DurableTest() override { fs::remove_all(dir_); }
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& e : fs::directory_iterator(dir_)) found.push_back(e.path().filename());
    std::ranges::sort(found);
    return found;
  }
  fs::path dir_;
};

// Runs `body` in another process and returns how that ended (waitpid).
int in_child(const std::function<void()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    body();
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return status;
}

mode_t mode_of(const fs::path& p) {
  struct stat st {};
  EXPECT_EQ(::stat(p.c_str(), &st), 0);
  return st.st_mode & 07777;
}

TEST_F(DurableTest, TheModeOfAReplacedFileStays) {
  replace_file(dir_ / "secret", "old");
  ASSERT_EQ(::chmod((dir_ / "secret").c_str(), 0600), 0);
  replace_file(dir_ / "secret", "new");
  EXPECT_EQ(mode_of(dir_ / "secret"), 0600u);
  EXPECT_EQ(read_text_file(dir_ / "secret"), "new");
  replace_file(dir_ / "plain", "x");
  EXPECT_EQ(
      mode_of(dir_ / "plain"), 0644u & ~[] {
        const mode_t mask = ::umask(0);
        ::umask(mask);
        return mask;
      }());
}

TEST_F(DurableTest, TheOwnerOfAReplacedFileStays) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root may give files away";
  replace_file(dir_ / "x", "old");
  ASSERT_EQ(::chown((dir_ / "x").c_str(), 12345, 54321), 0);
  replace_file(dir_ / "x", "new");
  struct stat st {};
  ASSERT_EQ(::stat((dir_ / "x").c_str(), &st), 0);
  EXPECT_EQ(st.st_uid, 12345u);
  EXPECT_EQ(st.st_gid, 54321u);
}

// Two containers whose processes have the same number, and a link somebody planted.
TEST_F(DurableTest, TemporariesOfOneTargetAreDifferentFiles) {
  replace_file(dir_ / "victim", "mine");
  AtomicFile a(dir_ / "x"), b(dir_ / "x");
  EXPECT_EQ(names().size(), 3u);
  a.write("aaaa");
  b.write("bb");
  b.commit();
  EXPECT_EQ(read_text_file(dir_ / "x"), "bb");
  a.commit();
  EXPECT_EQ(read_text_file(dir_ / "x"), "aaaa");
  // The name of the version before, which could be known beforehand.
  fs::create_symlink(dir_ / "victim", dir_ / ("y.tmp." + std::to_string(::getpid())));
  replace_file(dir_ / "y", "text");
  EXPECT_EQ(read_text_file(dir_ / "victim"), "mine");
}

TEST_F(DurableTest, WhatAppearedMeanwhileIsKept) {
  AtomicFile f(dir_ / "x", Existing::keep);
  f.write("later");
  replace_file(dir_ / "x", "earlier");
  EXPECT_THROW(f.commit(), FormatError);
  EXPECT_EQ(read_text_file(dir_ / "x"), "earlier");
}

TEST_F(DurableTest, NothingIsLeftOfAFileThatWasNotFinished) {
  {
    AtomicFile f(dir_ / "x", Existing::keep);
    replace_file(dir_ / "x", "earlier");
    EXPECT_THROW(f.commit(), FormatError);
  }
  EXPECT_EQ(names(), std::vector<std::string>{"x"});
}

TEST_F(DurableTest, LeftoversOfKilledProgramsGoAndLiveOnesStay) {
  EXPECT_TRUE(WIFSIGNALED(in_child([&] {
    AtomicFile f(dir_ / "dead");
    f.write("half");
    const Temporary d = create_temporary_directory(dir_ / "model");
    replace_file(d.path / "inside", "x");
    ::raise(SIGKILL);
  })));
  EXPECT_EQ(names().size(), 2u);
  AtomicFile alive(dir_ / "alive");  // the first write of this process here tidies up
  EXPECT_EQ(names().size(), 1u);
  replace_file(dir_ / "notes.nibble-tmp", "not ours");
  replace_file(dir_ / "x.0123456789abcdeX.nibble-tmp", "not ours");
  remove_leftovers(dir_);
  EXPECT_EQ(names().size(), 3u) << "what is being written, and what only looks like ours";
  alive.commit();
  EXPECT_TRUE(fs::exists(dir_ / "alive"));
}

TEST_F(DurableTest, NamesOfTemporaries) {
  EXPECT_TRUE(is_temporary_name("x.dat.0123456789abcdef.nibble-tmp"));
  for (const char* name : {"", ".nibble-tmp", "x.nibble-tmp", "0123456789abcdef.nibble-tmp",
                           "x.0123456789abcdef.nibble", "x.0123456789ABCDEF.nibble-tmp"}) {
    EXPECT_FALSE(is_temporary_name(name)) << name;
  }
  const std::string longest(255, 'n');
  replace_file(dir_ / longest, "fits");
  EXPECT_EQ(read_text_file(dir_ / longest), "fits");
}

TEST_F(DurableTest, ALockIsHeldOnceAndEndsWithItsProgram) {
  const fs::path file = lock_in(dir_);
  EXPECT_EQ(lock_state(file), LockState::absent);
  {
    auto first = FileLock::take(file);
    ASSERT_TRUE(first);
    EXPECT_EQ(lock_state(file), LockState::held);
    EXPECT_NE(lock_holder(file).find(std::to_string(::getpid())), std::string::npos);
    EXPECT_FALSE(FileLock::take(file));
    FileLock moved = std::move(*first);
    EXPECT_EQ(lock_state(file), LockState::held);
  }
  EXPECT_EQ(lock_state(file), LockState::absent);
  EXPECT_TRUE(WIFSIGNALED(in_child([&] {
    const auto lock = FileLock::take(file);
    ::raise(SIGKILL);
  })));
  EXPECT_EQ(lock_state(file), LockState::free);
  EXPECT_TRUE(FileLock::take(file));
}

TEST_F(DurableTest, AMomentaryLookDoesNotKeepALockAway) {
  replace_file(lock_in(dir_), "");
  const int fd = ::open(lock_in(dir_).c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_EQ(::flock(fd, LOCK_SH), 0);
  std::thread leaves([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    ::close(fd);
  });
  EXPECT_TRUE(FileLock::take(lock_in(dir_)));
  leaves.join();
}

TEST_F(DurableTest, DirectoriesWithAllTheirParents) {
  make_directories(dir_ / "a" / "b" / "c/");
  EXPECT_TRUE(fs::is_directory(dir_ / "a" / "b" / "c"));
  make_directories(dir_ / "a");
  replace_file(dir_ / "file", "");
  EXPECT_THROW(make_directories(dir_ / "file" / "x"), FormatError);
  EXPECT_THROW(make_directories(dir_ / "file"), FormatError);
}

TEST_F(DurableTest, LinesAreAppendedAndATornOneIsEnded) {
  append_file(dir_ / "log", "one\n");
  append_file(dir_ / "log", "two");
  append_file(dir_ / "log", "three\n");
  EXPECT_EQ(read_text_file(dir_ / "log"), "one\ntwo\nthree\n");
  EXPECT_THROW(append_file(dir_ / "absent" / "log", "x"), FormatError);
  EXPECT_THROW(append_file("/dev/full", "x\n"), FormatError);
}

TEST_F(DurableTest, LastWords) {
  replace_file(dir_ / "status", "running");
  replace_file(dir_ / "other", "running");
  in_child([&] {
    LastWords said(dir_ / "status"), silent(dir_ / "other");
    said.set("first");
    said.set("second");
    silent.set("not any more");
    silent.clear();
    write_last_words();
  });
  EXPECT_EQ(read_text_file(dir_ / "status"), "second");
  EXPECT_EQ(read_text_file(dir_ / "other"), "running");
  EXPECT_EQ(names().size(), 2u);
}

// Two threads that end the process at once: neither ends it before the words are written.
TEST_F(DurableTest, LastWordsOfTwoThreadsAreWhole) {
  for (int round = 0; round < 20; ++round) {
    replace_file(dir_ / "status", "running");
    in_child([&] {
      LastWords words(dir_ / "status");
      words.set("ended");
      const auto end = [] {
        write_last_words();
        ::_exit(0);
      };
      std::thread other(end);
      end();
      other.join();
    });
    ASSERT_EQ(read_text_file(dir_ / "status"), "ended") << "round " << round;
    ASSERT_EQ(names().size(), 1u) << "round " << round;
  }
}

// A signal that ends the process while it says its last words, at every moment of them.
TEST_F(DurableTest, LastWordsThatASignalInterruptsAreWhole) {
  for (int moment = 1; moment <= 60; ++moment) {
    replace_file(dir_ / "status", "running");
    in_child([&] {
      LastWords words(dir_ / "status");
      words.set("ended");
      std::signal(SIGALRM, [](int) {
        write_last_words();
        ::_exit(0);
      });
      itimerval timer{};
      timer.it_value.tv_usec = moment * 20;
      ::setitimer(ITIMER_REAL, &timer, nullptr);
      words.say();
    });
    ASSERT_EQ(read_text_file(dir_ / "status"), "ended") << "moment " << moment;
    ASSERT_EQ(names().size(), 1u) << "moment " << moment;
  }
}

TEST_F(DurableTest, AnOpenFileIsWhatWasOpened) {
  replace_file(dir_ / "x", "first");
  const InputFile f(dir_ / "x");
  replace_file(dir_ / "x", "other");
  std::string text(5, '\0');
  f.again().read(0, std::as_writable_bytes(std::span(text)));
  EXPECT_EQ(text, "first");
  EXPECT_FALSE(f.changed());
  const InputFile g(dir_ / "x");
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  append_file(dir_ / "x", "more");
  EXPECT_TRUE(g.changed());
}

}  // namespace
}  // namespace nibble::test
