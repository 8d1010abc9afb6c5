// SPDX-License-Identifier: MIT
// Text from elsewhere: how deep it may nest, and what of it a terminal gets to see.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "core/json.h"
#include "core/log.h"
#include "core/progress.h"
#include "core/text/nesting.h"
#include "core/text/visible.h"

namespace nibble {
namespace {

using nlohmann::json;

std::string nested(size_t n) { return std::string(n, '[') + std::string(n, ']'); }

TEST(Nesting, OfJson) {
  EXPECT_FALSE(too_deep_in_json(nested(kMaxNesting)));
  EXPECT_EQ(too_deep_in_json(nested(kMaxNesting + 1)), kMaxNesting);
  EXPECT_FALSE(too_deep_in_json("\"" + nested(1000) + "\\\"" + nested(1000) + "\""));
  EXPECT_FALSE(too_deep_in_json("[" + std::string("[],").append(nested(3)) + "]"));
  std::string wide = "[";
  for (int i = 0; i < 1000; ++i) wide += "{\"a\": []},";
  EXPECT_FALSE(too_deep_in_json(wide + "1]"));
  for (const char* odd : {"", "\"", "\"\\", "]]]]", "}{"}) EXPECT_FALSE(too_deep_in_json(odd));
}

TEST(Nesting, OfToml) {
  std::string dots = "a";
  for (size_t i = 0; i < kMaxNesting; ++i) dots += ".a";
  EXPECT_FALSE(too_deep_in_toml("x = " + nested(kMaxNesting)));
  EXPECT_TRUE(too_deep_in_toml("x = " + nested(kMaxNesting + 1)));
  EXPECT_TRUE(too_deep_in_toml("[" + dots + "]"));
  EXPECT_TRUE(too_deep_in_toml("\n" + dots + " = 1"));
  EXPECT_FALSE(too_deep_in_toml(dots.substr(2) + " = 1"));
  EXPECT_FALSE(too_deep_in_toml("# " + dots + "\nx = '" + dots + "'\ny = \"" + dots + "\""));
  EXPECT_FALSE(too_deep_in_toml("x = '''\n" + nested(99) + "\n'''\ny = \"\"\"" + dots + "\"\"\""));
  std::string numbers = "x = [";
  for (int i = 0; i < 200; ++i) numbers += "1.5, ";
  EXPECT_FALSE(too_deep_in_toml(numbers + "]"));
  // A quote that is never closed hides nothing beyond its line.
  EXPECT_TRUE(too_deep_in_toml("x = \"a\n[" + dots + "]"));
  for (const char* odd : {"", "'", "\"\"\"", "'''", "#", "\"\\"})
    EXPECT_FALSE(too_deep_in_toml(odd));
}

TEST(Nesting, IsOneLimitForEveryWayToRead) {
  const std::string deep = nested(100'000), fine = nested(kMaxNesting);
  EXPECT_THROW(parse_json<json>(deep), json::parse_error);
  EXPECT_TRUE(parse_json_or_discard<json>(deep).is_discarded());
  EXPECT_TRUE(parse_json<json>(fine).is_array());
  EXPECT_TRUE(parse_json_or_discard<json>(fine).is_array());
  try {
    parse_json<json>(deep);
  } catch (const json::exception& e) {
    EXPECT_NE(std::string(e.what()).find("nested deeper than 64"), std::string::npos) << e.what();
  }
}

TEST(Visible, SpellsOutWhatActs) {
  EXPECT_EQ(visible_text("plain 中文 é\n\tnext\r\n"), "plain 中文 é\n\tnext\r\n");
  EXPECT_EQ(visible_text("\x1b[31m\a\b\r\x7f"), "\\x1b[31m\\x07\\x08\\r\\x7f");
  EXPECT_EQ(visible_text("\xc2\x9b"
                         "1m"),
            "\\x9b1m");  // C1, as UTF-8
  EXPECT_EQ(visible_text("\x9b"
                         "1m"),
            "\\x9b1m");  // C1, as a byte
  EXPECT_EQ(visible_text("a\xe2\x80\xae"
                         "b\xe2\x81\xa6"),
            "a\\u202eb\\u2066");  // directions
  EXPECT_EQ(visible_text("\xed\xa0\x80\xc0\x80\xff"), "\\xed\\xa0\\x80\\xc0\\x80\\xff");
  EXPECT_EQ(visible_line("a\nb\tc\r\n"), "a\\nb\\tc\\r\\n");
  EXPECT_EQ(visible_text(std::string_view("\0x", 2)), "\\x00x");
}

TEST(Visible, WholeCharacters) {
  EXPECT_EQ(whole_characters("abc"), 3u);
  EXPECT_EQ(whole_characters("a\xe4\xbd\xa0"), 4u);
  EXPECT_EQ(whole_characters("a\xe4\xbd"), 1u);
  EXPECT_EQ(whole_characters("a\xe4"), 1u);
  EXPECT_EQ(whole_characters("a\xf0\x9f\x98"), 1u);
  EXPECT_EQ(whole_characters("\xbd\xbd\xbd\xbd"), 4u);  // not the end of anything
  EXPECT_EQ(whole_characters(""), 0u);
}

// Standard error may be full or closed: work goes on. In a process of its own.
TEST(Output, NeverThrows) {
  for (const bool closed : {false, true}) {
    const pid_t child = ::fork();
    if (child == 0) {
      if (closed) {
        ::close(2);
      } else {
        ::dup2(::open("/dev/full", O_WRONLY), 2);
      }
      {
        Progress progress("saving", 100);
        std::this_thread::sleep_for(std::chrono::milliseconds(2050));
        progress.update(50);  // drawn from the third second on
        log_warning("lost");
      }
      std::_Exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
}

}  // namespace
}  // namespace nibble
