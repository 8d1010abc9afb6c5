// SPDX-License-Identifier: MIT
#include "generate/chat_log.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "eval/scenario.h"
#include "support/toy_dir.h"

namespace nibble::test {
namespace {

TEST(ChatLog, TextFormatIsThePredecessors) {
  TemporaryDirectory dir("log");
  const auto file = dir.path() / "sub" / "chat.txt";  // folders are made on demand
  append_text_log(file, {{Role::system, "s"}, {Role::user, "你好"}}, "我是", "2026-01-02 03:04:05");
  append_text_log(file, {{Role::user, "b"}}, "c", "2026-01-02 03:04:06");
  EXPECT_EQ(read_text_file(file),
            "==== 2026-01-02 03:04:05 ====\n[system] s\n[user] 你好\n[assistant] 我是\n\n"
            "==== 2026-01-02 03:04:06 ====\n[user] b\n[assistant] c\n\n");
}

TEST(ChatLog, JsonlRoundTripLeavesTheLastAnswerOut) {
  TemporaryDirectory dir("log");
  const auto file = dir.path() / "chat.jsonl";
  append_jsonl_log(file, {{Role::system, "s"}, {Role::user, "你好"}}, "我是\n\"x\"",
                   "2026-01-02 03:04:05");
  append_jsonl_log(file, {{Role::user, "second"}}, "dropped", "2026-01-02 03:04:06");
  EXPECT_EQ(read_text_file(file).substr(0, 76),
            R"({"ts":"2026-01-02 03:04:05","messages":[{"role":"system","text":"s"},{"role")");
  const ReplayedChat chat = read_jsonl_log(file);
  ASSERT_EQ(chat.history.size(), 3u);
  EXPECT_EQ(chat.history[0].role, Role::system);
  EXPECT_EQ(chat.history[1].content, "你好");
  EXPECT_EQ(chat.history[2].role, Role::assistant);
  EXPECT_EQ(chat.history[2].content, "我是\n\"x\"");
  EXPECT_EQ(chat.last_question, "second");
}

TEST(ChatLog, BrokenTextIsReplacedNotFatal) {
  TemporaryDirectory dir("log");
  const auto file = dir.path() / "chat.jsonl";
  append_jsonl_log(file, {{Role::user, "q"}}, "cut \xe4\xbd", "t");
  EXPECT_NO_THROW(read_jsonl_log(file));
}

TEST(ChatLog, DamagedReplayNamesTheLine) {
  TemporaryDirectory dir("log");
  const auto file = dir.path() / "chat.jsonl";
  const std::string good = R"({"ts":"t","messages":[{"role":"user","text":"a"}],"output":"b"})";
  for (const std::string& bad :
       {std::string("{"), std::string("[]"),
        std::string(R"({"messages":[{"role":"user"}],"output":"b"})"),
        std::string(R"({"messages":[{"role":"nobody","text":"a"}],"output":"b"})")}) {
    replace_file(file, good + "\n\n" + bad + "\n");
    try {
      read_jsonl_log(file);
      FAIL() << bad;
    } catch (const FormatError& e) {
      EXPECT_NE(std::string(e.what()).find(":3"), std::string::npos) << e.what();
    }
  }
  replace_file(file, "\n");
  EXPECT_THROW(read_jsonl_log(file), FormatError);
}

TEST(Scenario, LinesCommentsAndEscapes) {
  TemporaryDirectory dir("scenario");
  replace_file(dir.path() / "s.txt", "# comment\nhello\r\n\n  \ntwo\\nlines\n你是誰");
  EXPECT_EQ(read_scenario(dir.path() / "s.txt"),
            (std::vector<std::string>{"hello", "two\nlines", "你是誰"}));
  replace_file(dir.path() / "s.txt", "# nothing\n");
  EXPECT_THROW(read_scenario(dir.path() / "s.txt"), FormatError);
}

TEST(Scenario, PredecessorHasEightTurns) {
  const auto turns = predecessor_scenario("hi");
  ASSERT_EQ(turns.size(), 8u);
  EXPECT_EQ(turns[0], "hi");
  EXPECT_EQ(turns[3], turns[4]);
  EXPECT_EQ(turns[5], turns[7]);
}

}  // namespace
}  // namespace nibble::test
