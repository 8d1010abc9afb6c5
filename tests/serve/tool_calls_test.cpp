// SPDX-License-Identifier: MIT
// Calls of tools in the text of a reply, wherever its pieces are cut.
#include "serve/api/tool_calls.h"

#include <gtest/gtest.h>

namespace nibble::test {
namespace {

struct Read {
  std::string text;
  std::vector<CalledTool> calls;
};

Read read(const std::string& all, size_t piece, bool wanted = true) {
  ToolCallReader reader(wanted);
  Read out;
  const auto add = [&](ToolCallReader::Out o) {
    out.text += o.text;
    out.calls.insert(out.calls.end(), o.calls.begin(), o.calls.end());
  };
  for (size_t i = 0; i < all.size(); i += piece) add(reader.push(all.substr(i, piece)));
  add(reader.flush());
  return out;
}

TEST(ToolCalls, AreFoundWhereverPiecesAreCut) {
  const std::string all =
      "I look.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\"}}\n"
      "</tool_call>\n<tool_call>{\"name\": \"now\", \"arguments\": \"{}\"}</tool_call>";
  for (size_t piece = 1; piece <= all.size(); ++piece) {
    const Read r = read(all, piece);
    ASSERT_EQ(r.calls.size(), 2u) << piece;
    EXPECT_EQ(r.calls[0].name, "weather");
    EXPECT_EQ(r.calls[0].arguments, "{\"city\":\"Rome\"}");
    EXPECT_EQ(r.calls[1].arguments, "{}");
    EXPECT_NE(r.calls[0].id, r.calls[1].id);
    EXPECT_EQ(r.text, "I look.\n") << piece;
  }
  EXPECT_EQ(read(all, 5, false).text, all);
}

TEST(ToolCalls, WhatIsNoCallStaysText) {
  for (const std::string text : {"<tool_call>{\"name\": 5, \"arguments\": {}}</tool_call>",
                                 "<tool_call>{</tool_call> and more", "<tool_call>{\"name\": \"a\"",
                                 "a <tool", "<tool_call></tool_call>", "1 < 2"}) {
    for (const size_t piece : {size_t(1), size_t(7), text.size()}) {
      const Read r = read(text, piece);
      EXPECT_EQ(r.text, text) << piece;
      EXPECT_TRUE(r.calls.empty());
    }
  }
}

}  // namespace
}  // namespace nibble::test
