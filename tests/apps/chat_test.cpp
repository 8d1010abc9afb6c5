// SPDX-License-Identifier: MIT
// nibble chat: scripted, piped and replayed conversations, and what each option does.
#include <gtest/gtest.h>

#include "support/cli.h"
#include "support/toy_dir.h"

namespace nibble::test {
namespace {

class ChatCommand : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    dir_ = new TemporaryDirectory("chat");
    write_toy_directory(dir_->path() / "m");
  }
  static void TearDownTestSuite() { delete dir_; }

  CliResult run(std::vector<std::string> args, const std::string& input = "") {
    args.insert(args.begin(),
                {"chat", "--model", dir_->file("m"), "--max-tokens", "6", "--kv-dtype", "fp32"});
    const CliResult r = cli(args, input);
    return r;
  }
  std::string output(std::vector<std::string> args, const std::string& input = "") {
    const auto r = run(std::move(args), input);
    EXPECT_EQ(r.code, 0) << r.err;
    return r.out;
  }
  // The ids of every reply, one line each.
  std::string reply_ids(std::vector<std::string> args, const std::string& input = "") {
    args.push_back("--print-ids");
    const std::string out = output(std::move(args), input);
    std::string ids;
    for (size_t at = out.find("ids: "); at != std::string::npos; at = out.find("ids: ", at + 1)) {
      ids += out.substr(at, out.find('\n', at) - at) + "\n";
    }
    return ids;
  }
  static size_t lines(const std::string& s) { return size_t(std::count(s.begin(), s.end(), '\n')); }
  static TemporaryDirectory* dir_;
};
TemporaryDirectory* ChatCommand::dir_ = nullptr;

TEST_F(ChatCommand, PipedTurnsEqualScriptedTurns) {
  const std::string piped = reply_ids({}, "hello\n\n你是誰\n");
  EXPECT_EQ(lines(piped), 2u);
  replace_file(dir_->file("script.txt"), "# two turns\nhello\n你是誰\n");
  EXPECT_EQ(reply_ids({"--script", dir_->file("script.txt")}), piped);
  EXPECT_EQ(reply_ids({"--prompt", "hello", "--turns", "2", "--followup-prompt", "你是誰"}), piped);
}

TEST_F(ChatCommand, PredecessorScenarioHasEightTurns) {
  EXPECT_EQ(lines(reply_ids({"--script", "predecessor"})), 8u);
  const std::string out = output({"--script", "predecessor", "--prompt", "hi"});
  EXPECT_TRUE(contains(out, "[0] hi\nout: "));
  EXPECT_TRUE(contains(out, "[7] "));
}

TEST_F(ChatCommand, EveryModeOfHistoryAndCacheGivesTheSameReplies) {
  const std::vector<std::string> script = {"--prompt", "hello", "--turns", "3"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), script.begin(), script.end());
    return reply_ids(more);
  };
  const std::string want = with({});
  EXPECT_EQ(with({"--use-kvc", "false"}), want);
  EXPECT_EQ(with({"--prefill", "token"}), want);
  EXPECT_EQ(with({"--prefill", "chunked", "--chunk", "2"}), want);
  // Rendering messages again goes through text. Greedy replies of the toy are valid text.
  const std::string messages = with({"--history", "messages"});
  EXPECT_EQ(with({"--HistoryMode", "both"}), messages);
  EXPECT_EQ(with({"--history", "messages", "--persistent", "false"}), messages);
}

TEST_F(ChatCommand, TimingShowsReuse) {
  const std::string kept = output({"--prompt", "hello", "--turns", "2", "--timing"});
  EXPECT_TRUE(contains(kept, "[time] prefill:"));
  EXPECT_EQ(kept.rfind(", 0 tokens reused"),
            kept.find(", 0 tokens reused"));  // the first turn only
  const std::string fresh =
      output({"--prompt", "hello", "--turns", "2", "--timing", "--persistent", "false"});
  EXPECT_NE(fresh.rfind(", 0 tokens reused"), fresh.find(", 0 tokens reused"));
  EXPECT_FALSE(contains(output({"--prompt", "hello"}), "[time]"));
}

TEST_F(ChatCommand, SystemAndTemplateChangeTheReply) {
  const std::string want = reply_ids({"--prompt", "hello"});
  EXPECT_NE(reply_ids({"--prompt", "hello", "--system", "be brief"}), want);
  EXPECT_NE(reply_ids({"--prompt", "hello", "--template", "predecessor"}), want);
  const std::string tools = dir_->file("tools.json");
  replace_file(tools, "[{\"name\": \"f\"}]");
  EXPECT_NE(reply_ids({"--prompt", "hello", "--tools", tools}), want);
  EXPECT_NE(reply_ids({"--prompt", "hello", "--thinking", "off"}), want);
  EXPECT_EQ(reply_ids({"--prompt", "hello", "--thinking", "on"}), want);
  EXPECT_EQ(reply_ids({"--prompt", "hello", "--template", "chatml"}), want);
  EXPECT_NE(reply_ids({"--prompt", "a<|im_end|>b"}),
            reply_ids({"--prompt", "a<|im_end|>b", "--parse-content"}));
}

TEST_F(ChatCommand, TypedCommands) {
  const std::string out =
      output({}, "hello\n/stats\n/reset\n/stats\n/help\n/nonsense\n/exit\nnever reached\n");
  EXPECT_TRUE(contains(out, "history reset"));
  EXPECT_TRUE(contains(out, "\n0 tokens in the conversation"));
  EXPECT_TRUE(contains(out, "unknown command /nonsense"));
  // After a reset the same words get the same reply as at the start.
  const std::string ids = reply_ids({}, "hello\nmore\n/reset\nhello\n");
  EXPECT_EQ(ids.substr(0, ids.find('\n')), ids.substr(ids.rfind("ids: "), ids.find('\n')));
}

TEST_F(ChatCommand, InteractiveAfterScript) {
  const std::string alone = reply_ids({}, "second\n");
  const std::string after = reply_ids({"--prompt", "hello", "--interactive"}, "second\n");
  EXPECT_EQ(after.substr(after.find('\n') + 1), alone);  // history was reset
  const std::string kept = reply_ids(
      {"--prompt", "hello", "--ifInteractive", "true", "--interactive-reset-history", "false"},
      "second\n");
  EXPECT_EQ(kept, reply_ids({}, "hello\nsecond\n"));
  EXPECT_EQ(lines(reply_ids({"--prompt", "hello", "--interactive", "false"}, "second\n")), 1u);
}

TEST_F(ChatCommand, LogsAndReplay) {
  const std::string text = dir_->file("tee.txt"), jsonl = dir_->file("tee.jsonl");
  const std::string said =
      reply_ids({"--tee", text, "--tee-jsonl", jsonl, "--system", "be brief"}, "hello\n你是誰\n");
  const std::string log = read_text_file(text);
  EXPECT_TRUE(contains(log, "[system] be brief\n[user] hello\n[assistant] "));
  EXPECT_TRUE(contains(log, "[user] 你是誰\n[assistant] "));
  EXPECT_EQ(lines(read_text_file(jsonl)), 2u);
  // The last answer again, from the file alone. Messages are rendered, so compare with that mode.
  const std::string again = reply_ids({"--replay", jsonl});
  const std::string messages =
      reply_ids({"--history", "messages", "--system", "be brief"}, "hello\n你是誰\n");
  EXPECT_EQ(again, messages.substr(messages.find('\n') + 1));
  EXPECT_EQ(run({"--prompt-from-chat-session", dir_->file("absent.jsonl")}).code, 3);
}

TEST_F(ChatCommand, CheckLogits) {
  EXPECT_TRUE(contains(output({"--prompt", "hello", "--check-logits"}),
                       "[info] logits ok: nan=False inf=False"));
}

TEST_F(ChatCommand, TimeoutEndsATurn) {
  // So long that no processor is done within a millisecond.
  std::string prompt;
  for (int i = 0; i < 230; ++i) prompt += "hello ";
  const std::vector<std::string> whole = {"--prompt", prompt, "--use-kvc", "false"};
  std::vector<std::string> hurried = whole;
  hurried.insert(hurried.end(), {"--timeout-ms", "1"});
  EXPECT_LT(reply_ids(hurried).size(), reply_ids(whole).size());
}

TEST_F(ChatCommand, MistakesAreAnswered) {
  EXPECT_EQ(run({"--turns", "2"}).code, 2);
  EXPECT_EQ(run({"--prompt", "a", "--turns", "2", "--script", "predecessor"}).code, 2);
  EXPECT_EQ(run({"--prompt", "a", "--replay", "x"}).code, 2);
  EXPECT_EQ(run({"--replay", "x", "--system", "y"}).code, 2);
  EXPECT_EQ(run({"--prompt", "a", "--tee", "/proc/none/x"}).code, 3);
  EXPECT_EQ(run({"--script", dir_->file("absent.txt")}).code, 3);
  EXPECT_EQ(run({"--prompt", "a", "--context", "4"}).code, 2);
  EXPECT_EQ(run({"--history", "none"}).code, 2);
}

}  // namespace
}  // namespace nibble::test
