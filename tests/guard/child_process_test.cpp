// SPDX-License-Identifier: MIT
// What other programs are told, what they inherit, and how they end.
#include "guard/child_process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

#include "core/error.h"
#include "support/text.h"

namespace nibble::test {
namespace {

TEST(ChildProcess, GivesWordsAsTheyAreAndSaysHowItEnded) {
  const ChildProgram echo{"/bin/echo", "echo"};
  Finished f = run_shortly(echo, {"$HOME", "a b", "; ls"}, std::chrono::seconds(10));
  EXPECT_EQ(f.status, 0);
  EXPECT_EQ(f.out, "$HOME a b ; ls\n");
  f = run_shortly({"/bin/sh", "sh"}, {"-c", "echo no >&2; kill -9 $$"}, std::chrono::seconds(10));
  EXPECT_EQ(f.status, 137);
  EXPECT_EQ(f.err, "no\n");
  f = run_shortly({"/bin/sleep", "sleep"}, {"60"}, std::chrono::milliseconds(50));
  EXPECT_EQ(f.status, -1);
  EXPECT_THROW(run_shortly({"/no/such", "x"}, {"y"}, std::chrono::seconds(1)), Error);
}

// The key that opens the server is not for children, nor are its sockets.
TEST(ChildProcess, InheritsNoSecretAndNoFile) {
  ::setenv("NIBBLE_API_KEY", "0123456789abcdef", 1);
  const int low = ::open("/dev/null", O_RDONLY);
  const int fd = ::fcntl(low, F_DUPFD, 200);  // without FD_CLOEXEC; no number a shell would take
  ASSERT_GE(fd, 200);
  const Finished f =
      run_shortly({"/bin/sh", "sh"}, {"-c", "env; ls /proc/self/fd"}, std::chrono::seconds(10));
  ::close(fd);
  ::close(low);
  ::unsetenv("NIBBLE_API_KEY");
  EXPECT_FALSE(contains(f.out, "NIBBLE_API_KEY"));
  EXPECT_FALSE(contains(f.out, "\n" + std::to_string(fd) + "\n")) << f.out;
}

}  // namespace
}  // namespace nibble::test
