// SPDX-License-Identifier: MIT
#include "apps/chat/chat_logs.h"

#include <gtest/gtest.h>

#include "generate/chat_log.h"
#include "support/text.h"
#include "support/toy_dir.h"

namespace nibble::test {
namespace {

const std::vector<Message> kOne = {{Role::user, "a"}, {Role::assistant, "b"}};
const std::vector<Message> kTwo = {
    {Role::user, "a"}, {Role::assistant, "b"}, {Role::user, "c"}, {Role::assistant, "d"}};

TEST(ChatLogs, ATurnThatIsTakenBackLeavesTheFiles) {
  TemporaryDirectory dir("logs");
  const auto text = dir.path() / "t", jsonl = dir.path() / "j";
  ChatLogs logs(text, jsonl);
  logs.add(kOne);
  const std::string before_text = read_text_file(text), before_jsonl = read_text_file(jsonl);
  logs.add(kTwo);
  EXPECT_EQ(read_jsonl_log(jsonl).last_question, "c");
  logs.take_back();
  EXPECT_EQ(read_text_file(text), before_text);
  EXPECT_EQ(read_text_file(jsonl), before_jsonl);
}

TEST(ChatLogs, WhereItCannotBeCutTheConversationIsWrittenAnew) {
  TemporaryDirectory dir("logs");
  const auto jsonl = dir.path() / "j";
  ChatLogs logs({}, jsonl);
  logs.add(kOne);
  append_file(jsonl, jsonl_line({{Role::user, "of somebody else"}}, "x", "t"));
  logs.take_back();
  logs.add(kTwo);
  const ReplayedChat chat = read_jsonl_log(jsonl);
  ASSERT_EQ(chat.history.size(), 2u);
  EXPECT_EQ(chat.history[0].content, "a");
  EXPECT_EQ(chat.last_question, "c");
}

TEST(ChatLogs, ABeginningIsMarkedWhereSomethingStandsBeforeIt) {
  TemporaryDirectory dir("logs");
  const auto text = dir.path() / "t", jsonl = dir.path() / "j";
  ChatLogs logs(text, jsonl);
  logs.begin_anew();
  logs.add(kOne);
  EXPECT_FALSE(contains(read_text_file(jsonl), "\"new\""));
  logs.begin_anew();
  logs.add(kOne);
  EXPECT_TRUE(contains(read_text_file(jsonl), "\"new\":true"));
  EXPECT_TRUE(contains(read_text_file(text), "[a new conversation]\n"));
  EXPECT_TRUE(read_jsonl_log(jsonl).history.empty());
  ChatLogs next(text, jsonl);  // another sitting
  next.add(kTwo);
  EXPECT_EQ(read_jsonl_log(jsonl).history.size(), 2u);
}

}  // namespace
}  // namespace nibble::test
