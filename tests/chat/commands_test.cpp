// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include "apps/chat/slash_commands.h"
#include "support/cli.h"
#include "support/toy_dir.h"

namespace nibble::test {
namespace {

using Kind = Typed::Kind;

TEST(SlashCommands, WhatIsTyped) {
  EXPECT_EQ(read_typed("  ", true).kind, Kind::nothing);
  EXPECT_EQ(read_typed("hello", true).kind, Kind::said);
  const Typed temp = read_typed("/temp 0.5", true);
  EXPECT_EQ(temp.kind, Kind::command);
  EXPECT_EQ(temp.command, Slash::temp);
  EXPECT_EQ(temp.text, "0.5");
  EXPECT_EQ(read_typed("/tmep 0.5", true).kind, Kind::unknown);
  EXPECT_EQ(read_typed("/tmep", false).kind, Kind::unknown);
  EXPECT_EQ(read_typed("/usr is a folder", false).kind, Kind::said);  // a pipe's, as ever
  EXPECT_EQ(read_typed("//usr", true).text, "/usr");
  EXPECT_EQ(read_typed("/usr\nand more", true).kind, Kind::said);
  EXPECT_NE(unknown_answer("/tmep 0.5").find("did you mean /temp?"), std::string::npos);
}

TEST(SlashCommands, Blocks) {
  EXPECT_TRUE(is_unfinished("\"\"\""));
  EXPECT_TRUE(is_unfinished("\"\"\"a\nb"));
  EXPECT_FALSE(is_unfinished("\"\"\"a\nb\"\"\""));
  EXPECT_FALSE(is_unfinished("a \"\"\""));
  EXPECT_TRUE(is_unfinished("/system \"\"\"a"));
  EXPECT_EQ(read_typed("\"\"\"\na\n\nb\n\"\"\"", true).text, "a\n\nb");
  EXPECT_EQ(read_typed("\"\"\"\n\"\"\"", true).kind, Kind::nothing);
}

TEST(SlashCommands, Completion) {
  EXPECT_EQ(complete_typed("/re").words, (std::vector<std::string>{"/reset", "/regen"}));
  EXPECT_EQ(complete_typed("/te").words, (std::vector<std::string>{"/temp "}));
  EXPECT_TRUE(complete_typed("hello").words.empty());
  TemporaryDirectory dir("complete");
  replace_file(dir.path() / "saved.chat", "x");
  const Completion file = complete_typed("/load " + dir.file("sa"));
  EXPECT_EQ(file.words, (std::vector<std::string>{dir.file("saved.chat")}));
  EXPECT_EQ(file.begin, 6u);
}

class PipedChat : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    dir_ = new TemporaryDirectory("piped");
    write_toy_directory(dir_->path() / "m");
  }
  static void TearDownTestSuite() { delete dir_; }
  static CliResult run(const std::string& input, std::vector<std::string> more = {}) {
    std::vector<std::string> args = {"chat", "--model",    dir_->file("m"), "--max-tokens",
                                     "6",    "--kv-dtype", "fp32",          "--print-ids"};
    args.insert(args.end(), more.begin(), more.end());
    return cli(args, input);
  }
  static std::vector<std::string> ids(const CliResult& r) {
    std::vector<std::string> found;
    for (size_t at = 0; (at = r.out.find("ids: ", at)) != std::string::npos; ++at) {
      found.push_back(r.out.substr(at, r.out.find('\n', at) - at));
    }
    return found;
  }
  static TemporaryDirectory* dir_;
};
TemporaryDirectory* PipedChat::dir_ = nullptr;

TEST_F(PipedChat, UndoIsAsIfItHadNotBeenAsked) {
  const auto want = ids(run("hello\nnext\n"));
  const auto got = ids(run("hello\nother\n/undo\nnext\n"));
  ASSERT_EQ(got.size(), 3u);
  EXPECT_EQ(got[2], want[1]);
  EXPECT_TRUE(contains(run("/undo\n/regen\n").out, "nothing to take back\nthere is no question"));
}

TEST_F(PipedChat, RegenIsWhatTheQuestionAloneWouldGet) {
  const auto want = ids(run("hello\nnext\nlast\n", {"--temp", "0"}));
  const auto got = ids(run("hello\nnext\n/regen\nlast\n", {"--temp", "0"}));
  ASSERT_EQ(got.size(), 4u);
  EXPECT_EQ(got[2], want[1]);
  EXPECT_EQ(got[3], want[2]);
}

TEST_F(PipedChat, RegenDrawsAnew) {
  const auto drawn = ids(run("hello\n/regen\n/regen\n", {"--temp", "3"}));
  ASSERT_EQ(drawn.size(), 3u);
  EXPECT_NE(drawn[0], drawn[1]);
  EXPECT_NE(drawn[1], drawn[2]);
  EXPECT_EQ(drawn[1], ids(run("hello\n", {"--temp", "3", "--seed", "124"}))[0]);
  const auto greedy = ids(run("hello\n/regen\n", {"--temp", "0"}));
  EXPECT_EQ(greedy[0], greedy[1]);
}

TEST_F(PipedChat, TempAndSystem) {
  const CliResult r = run("/temp 0.5\n/temp\n/temp 0\n/system be brief\nhello\n/reset\nhello\n");
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_TRUE(contains(r.out, "temperature 0.5\ntemperature 0.5\ntemperature 0 (greedy)\n"));
  EXPECT_TRUE(contains(r.out, "system message: be brief\n"));
  const auto want = ids(run("hello\n", {"--system", "be brief", "--temp", "0"}));
  EXPECT_EQ(ids(r), (std::vector<std::string>{want[0], want[0]}));
  EXPECT_EQ(run("/temp warm\n").code, 2);
}

TEST_F(PipedChat, AFullContext) {
  const std::string turns = "one one one one\ntwo two two two\nthree three three\nfour four\n";
  const std::vector<std::string> small = {"--context", "100", "--system", "be brief"};
  const auto with = [&](const char* choice) {
    std::vector<std::string> args = small;
    args.insert(args.end(), {"--on-full", choice});
    return run(turns, args);
  };
  const CliResult refused = with("error");
  EXPECT_EQ(refused.code, 2);
  EXPECT_TRUE(contains(refused.err, "the context is full")) << refused.err;
  testing::internal::CaptureStderr();
  const CliResult stopped = with("stop");
  const std::string why = testing::internal::GetCapturedStderr();
  EXPECT_EQ(stopped.code, 0) << stopped.err;
  EXPECT_TRUE(contains(why, "the conversation ends here")) << why;
  testing::internal::CaptureStderr();
  const CliResult slid = with("slide");
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(slid.code, 0) << slid.err;
  EXPECT_EQ(ids(slid).size(), 4u);
  EXPECT_TRUE(contains(said, "are forgotten (--on-full slide)")) << said;
  EXPECT_LT(ids(stopped).size(), 4u);
}

TEST_F(PipedChat, ASavedChatGoesOnAsIfItHadNotEnded) {
  const std::string file = dir_->file("a.chat");
  const auto want = ids(run("hello\nnext\nlast\n"));
  EXPECT_EQ(run("hello\nnext\n/save " + file + "\n").code, 0);
  const CliResult r = run("/load " + file + "\nlast\n", {"--timing"});
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_TRUE(contains(r.out, "loaded 4 messages")) << r.out;
  EXPECT_EQ(ids(r), (std::vector<std::string>{want[2]}));
  EXPECT_FALSE(contains(r.out, " 0 tokens reused")) << r.out;
  // As if it had not ended: its turns can be taken back, too, and answered anew.
  const auto other = ids(run("hello\nnext\n/undo\nother\n"));
  EXPECT_EQ(ids(run("/load " + file + "\n/undo\nother\n"))[0], other[2]);
  EXPECT_EQ(ids(run("/load " + file + "\n/undo\n/undo\nhello\n"))[0], want[0]);
  EXPECT_EQ(ids(run("/load " + file + "\n/regen\nlast\n")),
            (std::vector<std::string>{want[1], want[2]}));
  // A file that is there is replaced only when asked for.
  const CliResult kept = run("hello\n/save " + file + "\n");
  EXPECT_EQ(kept.code, 2);
  EXPECT_TRUE(contains(kept.err, "--force")) << kept.err;
  EXPECT_EQ(run("hello\n/save --force " + file + "\n").code, 0);
  // An empty one, too.
  const std::string empty = dir_->file("empty.chat");
  EXPECT_EQ(run("/save " + empty + "\n").code, 0);
  const CliResult from_empty = run("/load " + empty + "\nhello\n");
  EXPECT_EQ(from_empty.code, 0) << from_empty.err;
  EXPECT_EQ(ids(from_empty)[0], want[0]);
}

TEST_F(PipedChat, WhatCannotBeLoadedIsSaid) {
  const std::string file = dir_->file("b.chat");
  ASSERT_EQ(run("hello\n/save " + file + "\n").code, 0);
  const std::string load = "/load " + file + "\n";
  const auto refused = [&](const CliResult& r, int code, const char* word) {
    EXPECT_EQ(r.code, code) << r.err;
    EXPECT_TRUE(contains(r.err, word)) << r.err;
  };
  refused(run(load, {"--context", "8"}), 2, "--context");
  refused(run("/load " + dir_->file("m") + "/model.safetensors\n"), 3, "no saved chat");
  refused(run("/load " + dir_->file("absent") + "\n"), 3, "absent");
  refused(run("/load\n"), 2, "/load needs");
  refused(run("/save\n"), 2, "/save needs");
  const CliResult typed = cli({"chat", "--model", dir_->file("m"), "--kv-dtype", "bf16"}, load);
  refused(typed, 2, "--kv-dtype");
  std::string bytes = read_text_file(file);
  bytes[bytes.size() - 3] = char(bytes[bytes.size() - 3] ^ 1);
  replace_file(file, bytes);
  refused(run(load), 3, "cannot be loaded");
}

TEST_F(PipedChat, AReplayIsWhatHappened) {
  const std::string log = dir_->file("log.jsonl");
  const auto replayed = [&] { return ids(run("", {"--replay", log, "--interactive", "false"})); };
  const std::vector<std::string> tee = {"--tee-jsonl", log, "--force", "--history", "messages"};
  const auto last = [](const std::vector<std::string>& all) {
    return std::vector<std::string>{all.back()};
  };
  const auto alone = ids(run("hello\n"));
  EXPECT_EQ(last(ids(run("other\n/reset\nhello\n", tee))), alone);
  EXPECT_EQ(replayed(), alone);
  // A second sitting in the same file is a conversation of its own.
  ids(run("first\nwrong\n/undo\n", tee));
  EXPECT_EQ(replayed(), ids(run("first\n")));
  const auto changed = ids(run("first\n/system be brief\nhello\n/regen\n", tee));
  EXPECT_EQ(replayed(), last(changed));
}

}  // namespace
}  // namespace nibble::test
