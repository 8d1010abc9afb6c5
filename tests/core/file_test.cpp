// SPDX-License-Identifier: MIT
#include "core/file.h"

#include "core/durable/temporary.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <string>
#include <vector>

#include "core/error.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;

class FileTest : public ::testing::Test {
 protected:
  FileTest() {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    dir_ = fs::temp_directory_path() /
           (std::string("nibble_file_") + info->name() + std::to_string(::getpid()));
    fs::create_directories(dir_);
  }
  ~FileTest() override { fs::remove_all(dir_); }
  fs::path put(const std::string& name, const std::string& text) {
    std::ofstream(dir_ / name, std::ios::binary) << text;
    return dir_ / name;
  }
  size_t entries() const {
    return size_t(std::distance(fs::directory_iterator(dir_), fs::directory_iterator()));
  }
  fs::path dir_;
};

std::string read_at(const InputFile& f, uint64_t offset, size_t n) {
  std::string s(n, '?');
  f.read(offset, std::as_writable_bytes(std::span(s)));
  return s;
}

TEST_F(FileTest, ReadsAtAnyOffset) {
  InputFile f(put("x", "0123456789"));
  EXPECT_EQ(f.size(), 10u);
  EXPECT_EQ(read_at(f, 3, 4), "3456");
  EXPECT_EQ(read_at(f, 10, 0), "");
  EXPECT_THROW(read_at(f, 8, 3), FormatError);
  EXPECT_THROW(read_at(f, ~uint64_t(0), 2), FormatError) << "the sum would overflow";
  InputFile g(std::move(f));
  EXPECT_EQ(read_at(g, 0, 2), "01");
  InputFile h(put("y", "abc"));
  h = std::move(g);
  EXPECT_EQ(h.size(), 10u);
  EXPECT_EQ(h.path(), dir_ / "x");
}

TEST_F(FileTest, AFileThatShrinksWhileReadIsAnError) {
  const auto p = put("x", "0123456789");
  const InputFile f(p);
  fs::resize_file(p, 4);
  EXPECT_EQ(read_at(f, 0, 4), "0123");
  EXPECT_THROW(read_at(f, 2, 6), FormatError);
}

TEST_F(FileTest, OpenErrorsSayWhy) {
  const auto error = [](const fs::path& p) {
    try {
      InputFile f(p);
    } catch (const FormatError& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_NE(error(dir_ / "absent").find("No such file"), std::string::npos);
  EXPECT_NE(error(dir_).find("directory"), std::string::npos);
  EXPECT_NE(error("/dev/null").find("not a regular file"), std::string::npos);
}

TEST_F(FileTest, AtomicFileAppearsOnlyOnCommit) {
  const fs::path p = dir_ / "x";
  {
    AtomicFile f(p);
    f.write("hello");
    EXPECT_FALSE(fs::exists(p));
    EXPECT_EQ(f.written(), 5u);
  }
  EXPECT_EQ(entries(), 0u) << "without commit nothing stays";
  put("x", "old");
  AtomicFile f(p);
  f.write("new ");
  EXPECT_EQ(read_text_file(p), "old");
  f.write("text");
  f.commit();
  EXPECT_EQ(read_text_file(p), "new text");
  EXPECT_EQ(entries(), 1u);
}

TEST_F(FileTest, AKilledWriterLeavesTheOldFile) {
  put("x", "old");
  const pid_t child = ::fork();
  if (child == 0) {
    AtomicFile f(dir_ / "x");
    f.write("half of the new");
    ::kill(::getpid(), SIGKILL);
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(read_text_file(dir_ / "x"), "old");
}

TEST_F(FileTest, AtomicFileErrors) {
  EXPECT_THROW(AtomicFile(dir_ / "absent" / "x"), FormatError);
  fs::create_directories(dir_ / "folder" / "inside");
  EXPECT_THROW(AtomicFile(dir_ / "folder"), FormatError) << "a directory cannot be replaced";
  EXPECT_EQ(entries(), 1u) << "there is no temporary";
  fs::create_symlink("loop", dir_ / "loop");
  EXPECT_THROW(AtomicFile(dir_ / "loop"), FormatError);
}

TEST_F(FileTest, ALinkIsFollowedAndStays) {
  fs::create_directories(dir_ / "folder");
  const fs::path real = put("folder/real", "old");
  fs::create_symlink("folder/real", dir_ / "relative");
  fs::create_symlink(dir_ / "relative", dir_ / "absolute");
  replace_file(dir_ / "absolute", "new");
  EXPECT_TRUE(fs::is_symlink(dir_ / "absolute"));
  EXPECT_TRUE(fs::is_symlink(dir_ / "relative"));
  EXPECT_FALSE(fs::is_symlink(real));
  EXPECT_EQ(read_text_file(real), "new");
  // One that points to nothing makes what it points to.
  fs::create_symlink("folder/made", dir_ / "dangling");
  replace_file(dir_ / "dangling", "made");
  EXPECT_TRUE(fs::is_symlink(dir_ / "dangling"));
  EXPECT_EQ(read_text_file(dir_ / "folder" / "made"), "made");
}

TEST_F(FileTest, ADeviceOrPipeIsWrittenToDirectly) {
  fs::create_symlink("/dev/null", dir_ / "null");
  replace_file(dir_ / "null", "gone");
  EXPECT_TRUE(fs::is_symlink(dir_ / "null"));
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  EXPECT_EQ(entries(), 1u);

  const fs::path pipe = dir_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const int reader = ::open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  replace_file(pipe, "text");
  char got[16] = {};
  EXPECT_EQ(::read(reader, got, sizeof(got)), 4);
  EXPECT_STREQ(got, "text");
  ::close(reader);
  EXPECT_TRUE(fs::is_fifo(pipe));
  EXPECT_EQ(entries(), 2u);
}

TEST_F(FileTest, TextFiles) {
  replace_file(dir_ / "t", "line\n");
  EXPECT_EQ(read_text_file(dir_ / "t"), "line\n");
  EXPECT_EQ(read_text_file(dir_ / "t", 5), "line\n");
  EXPECT_THROW(read_text_file(dir_ / "t", 4), FormatError);
  EXPECT_EQ(read_text_file(put("empty", "")), "");
}

TEST_F(FileTest, SameFileSeesThroughLinks) {
  const auto a = put("a", "x"), b = put("b", "x");
  fs::create_symlink(a, dir_ / "soft");
  fs::create_hard_link(a, dir_ / "hard");
  EXPECT_TRUE(same_file(a, a));
  EXPECT_TRUE(same_file(a, dir_ / "soft"));
  EXPECT_TRUE(same_file(dir_ / "hard", dir_ / "soft"));
  EXPECT_TRUE(same_file(a, dir_ / "." / "a"));
  EXPECT_FALSE(same_file(a, b));
  EXPECT_FALSE(same_file(a, dir_ / "absent"));
  EXPECT_FALSE(same_file(dir_ / "absent", dir_ / "absent"));
}

// What a signal handler does: temporaries in progress go, finished files stay.
TEST_F(FileTest, TemporariesAreRemovedWhenInterrupted) {
  {
    AtomicFile done(dir_ / "done");
    done.write("x");
    done.commit();
  }
  AtomicFile a(dir_ / "a"), b(dir_ / "b");
  a.write("half");
  EXPECT_EQ(entries(), 3u);
  remove_temporary_files();
  EXPECT_EQ(entries(), 1u);
  EXPECT_TRUE(fs::exists(dir_ / "done"));
}

}  // namespace
}  // namespace nibble
