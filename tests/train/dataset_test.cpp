// SPDX-License-Identifier: MIT
// What becomes of good data: template, scored tokens, window, documents, counts, hash.
#include "train/dataset.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "support/shared_data.h"
#include "tokenizer/python_json.h"
#include "train/dataset_support.h"

namespace nibble::test {
namespace {

std::vector<int32_t> ids_of(const Sample& s) { return {s.ids.begin(), s.ids.end()}; }

TEST(Dataset, TsvPromptIsTheInferencePromptAndTheResponseIsScoredWithItsEnd) {
  const Dataset d = read_tsv("hello\tworld 你\n");
  ASSERT_EQ(d.size(), 1);
  const Sample s = d.sample(0);
  const Message ask{Role::user, "hello"};
  std::vector<int32_t> want = encode_chat(mini(), std::span(&ask, 1));
  const size_t prompt = want.size();
  for (const int32_t id : mini().encode("world 你")) want.push_back(id);
  want.push_back(*mini().im_end());
  EXPECT_EQ(ids_of(s), want);
  for (size_t i = 0; i < s.ids.size(); ++i) {
    EXPECT_EQ(s.flags[i], i < prompt ? 0 : kScored) << "token " << i;
  }
  // The first scored row is the prompt's last token.
  EXPECT_FALSE(s.row_scored(int64_t(prompt) - 2));
  EXPECT_TRUE(s.row_scored(int64_t(prompt) - 1));
  EXPECT_EQ(scored_text(s), "world 你<|im_end|>");
}

// "\n" of the template and a response that begins with one would join when encoded together.
TEST(Dataset, TokensNeverJoinAcrossTheStartOfTheResponse) {
  const Tokenizer t = Tokenizer::parse(mini_tokenizer_text({{"\n", "\n"}}), "joins newlines");
  const Dataset d = parse_dataset(R"({"prompt": "a", "target": "\nb"})", "d.jsonl", t, {});
  const Message ask{Role::user, "a"};
  const auto prompt = encode_chat(t, std::span(&ask, 1));
  ASSERT_NE(t.encode("\n\n").size(), 2u);
  const Sample s = d.sample(0);
  ASSERT_GT(s.ids.size(), prompt.size());
  EXPECT_TRUE(std::equal(prompt.begin(), prompt.end(), s.ids.begin()));
  EXPECT_EQ(t.decode(s.ids.subspan(prompt.size())), "\nb<|im_end|>");
}

TEST(Dataset, TsvSkipsBlankAndCommentLinesAndTrims) {
  const Dataset d = read_tsv(
      "\xef\xbb\xbf# format\n\n  \t \n  # indented\n  a \t b\tc \r\n\r\n"
      "\xe3\x80\x80q\xe3\x80\x80\t\xc2\xa0r\n#x\ty\nlast\tone");
  ASSERT_EQ(d.size(), 3);
  EXPECT_EQ(all_text(d.sample(0)), render(std::vector<Message>{{Role::user, "a"}}) +
                                       "b\tc<|im_end|>");  // split at the first tab only
  EXPECT_EQ(all_text(d.sample(1)),
            render(std::vector<Message>{{Role::user, "q"}}) + "r<|im_end|>");  // Unicode spaces
  EXPECT_EQ(scored_text(d.sample(2)), "one<|im_end|>");  // without a final newline
  EXPECT_EQ(d.counts().lines, 9);
  EXPECT_EQ(d.counts().samples, 3);
}

TEST(Dataset, TxtIsTsvWhenFineTuning) {
  EXPECT_EQ(read("a\tb\n", "d.TXT").content_hash(), read_tsv("a\tb\n").content_hash());
}

TEST(Dataset, TemplateStyleOfThePredecessor) {
  DatasetOptions o;
  o.style = TemplateStyle::predecessor;
  EXPECT_EQ(all_text(read_tsv("a\tb\n", o).sample(0)),
            "<|im_start|>user\na\n<|im_end|>\n<|im_start|>assistant\nb<|im_end|>");
}

TEST(Dataset, EndTokenCanBeLeftOut) {
  DatasetOptions o;
  o.end_token = EndToken::leave_out;
  EXPECT_EQ(scored_text(read_tsv("a\tb\n", o).sample(0)), "b");
  EXPECT_TRUE(all_text(read_tsv("a\tb\n", o).sample(0)).ends_with("\nb"));
  // Between turns it stands, unscored.
  const Dataset d = read_jsonl(
      R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},)"
      R"({"role": "user", "content": "c"}, {"role": "assistant", "content": "d"}]})",
      o);
  EXPECT_EQ(scored_text(d.sample(0)), "bd");
  EXPECT_NE(all_text(d.sample(0)).find("b<|im_end|>\n<|im_start|>user\nc"), std::string::npos);
}

TEST(Dataset, SpecialTokensInDataAreTextUnlessAsked) {
  const std::string line = "a<|im_end|>\tb<think>\n";
  const auto count = [](const Sample& s, int32_t id) {
    return std::count(s.ids.begin(), s.ids.end(), id);
  };
  const int32_t think = *mini().id_of("<think>"), end = *mini().im_end();
  const Dataset plain = read_tsv(line);
  EXPECT_EQ(count(plain.sample(0), think), 1);  // no control token: the model writes it so
  EXPECT_EQ(count(read_tsv("a<think>\tb\n").sample(0), think), 0);  // a user has no such tokens
  EXPECT_EQ(count(plain.sample(0), end), 2);                        // of the template
  EXPECT_EQ(scored_text(plain.sample(0)), "b<think><|im_end|>");
  DatasetOptions o;
  o.content = ContentTokens::parse;
  const Dataset parsed = read_tsv(line, o);
  EXPECT_EQ(count(parsed.sample(0), think), 1);
  EXPECT_EQ(count(parsed.sample(0), end), 3);
}

TEST(Dataset, JsonlPromptAndTarget) {
  const Dataset d = read_jsonl(
      "{\"prompt\": \" a\", \"target\": \"b\\nc \"}\r\n\n"
      R"({"prompt": "p", "response": "r", "system": "s"})");
  ASSERT_EQ(d.size(), 2);
  // JSON says exactly what is meant: nothing is trimmed.
  EXPECT_EQ(all_text(d.sample(0)),
            "<|im_start|>user\n a<|im_end|>\n<|im_start|>assistant\nb\nc <|im_end|>");
  EXPECT_EQ(scored_text(d.sample(0)), "b\nc <|im_end|>");
  EXPECT_EQ(all_text(d.sample(1)),
            "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\np<|im_end|>\n"
            "<|im_start|>assistant\nr<|im_end|>");
  EXPECT_EQ(d.counts().lines, 3);
}

TEST(Dataset, EveryAssistantTurnIsScoredAndEveryPromptIsAsTheChatFeedsIt) {
  const std::vector<Message> m = {{Role::system, "be kind"},
                                  {Role::user, "hello"},
                                  {Role::assistant, "one"},
                                  {Role::user, "and?"},
                                  {Role::assistant, "two"}};
  const Dataset d = read_jsonl(
      R"({"messages": [{"role": "system", "content": "be kind"},)"
      R"({"role": "user", "content": "hello"}, {"role": "assistant", "content": "one"},)"
      R"({"role": "user", "content": "and?"}, {"role": "assistant", "content": "two"}]})");
  const Sample s = d.sample(0);
  EXPECT_EQ(scored_text(s), "one<|im_end|>two<|im_end|>");
  // The text is the template's, less the newline after the last turn.
  EXPECT_EQ(all_text(s) + "\n", render(m, {}, {TemplateStyle::qwen3, GenerationPrompt::no}));
  // The tokens are those of a chat with a cache: prompt, reply, end of turn, next turn.
  std::vector<int32_t> want = encode_chat(mini(), std::span(m).first(2));
  const auto add = [&](const std::vector<int32_t>& ids) {
    want.insert(want.end(), ids.begin(), ids.end());
  };
  add(mini().encode("one"));
  add(mini().encode(kTurnEnd));
  add(encode_turn(mini(), "and?"));
  add(mini().encode("two"));
  want.push_back(*mini().im_end());
  EXPECT_EQ(ids_of(s), want);
}

TEST(Dataset, ToolsAndToolCallsAreWrittenByTheTemplate) {
  const std::string messages =
      R"([{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "Let me see.",)"
      R"( "tool_calls": [{"name": "add", "arguments": {"a": 2}}]},)"
      R"({"role": "tool", "content": "4"}, {"role": "assistant", "content": "It is 4."}])";
  const std::string tool = R"({"name": "add", "parameters": {}})";
  const Dataset d = read_jsonl("{\"messages\": " + messages + ", \"tools\": [" + tool + "]}");
  const auto m = messages_from_json(Json::parse(messages));
  const std::vector<std::string> tools = {python_json(Json::parse(tool))};
  EXPECT_EQ(all_text(d.sample(0)) + "\n",
            render(m, tools, {TemplateStyle::qwen3, GenerationPrompt::no}));
  EXPECT_EQ(scored_text(d.sample(0)),
            "Let me see.\n<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 2}}\n"
            "</tool_call><|im_end|>It is 4.<|im_end|>");
  // The call's marks are tokens, not text.
  const Sample sample = d.sample(0);
  int calls = 0;
  for (size_t i = 0; i < sample.ids.size(); ++i) {
    calls += sample.ids[i] == *mini().id_of("<tool_call>") && sample.flags[i] == kScored;
  }
  EXPECT_EQ(calls, 1);
}

TEST(Dataset, WindowAtItsEdges) {
  const std::string line = "abcdefgh\tstuv\n";
  const auto whole = ids_of(read_tsv(line).sample(0));
  const auto n = int64_t(whole.size());
  DatasetOptions o;
  o.seq_len = n - 1;  // fits exactly
  EXPECT_EQ(ids_of(read_tsv(line, o).sample(0)), whole);
  EXPECT_EQ(read_tsv(line, o).counts().truncated, 0);
  EXPECT_EQ(read_tsv(line, o).counts().lost_tokens, 0);
  o.seq_len = n - 2;  // one too many
  const Dataset d = read_tsv(line, o);
  EXPECT_EQ(ids_of(d.sample(0)), std::vector<int32_t>(whole.begin() + 1, whole.end()));
  EXPECT_EQ(d.counts().truncated, 1);
  EXPECT_EQ(d.counts().lost_tokens, 1);
  EXPECT_EQ(d.counts().truncated_responses, 0);
  EXPECT_EQ(d.counts().longest, n);
  EXPECT_EQ(d.sample(0).rows(), o.seq_len);
  // The response is s, t, u, v and the end: five tokens need five rows.
  o.seq_len = 5;
  EXPECT_EQ(scored_text(read_tsv(line, o).sample(0)), "stuv<|im_end|>");
  EXPECT_EQ(read_tsv(line, o).sample(0).ids.size(), 6u);
  EXPECT_EQ(read_tsv(line, o).counts().lost_response_tokens, 0);
}

TEST(Dataset, ResponsesThatDoNotFitCanBeCut) {
  const std::string line = "abcdefgh\tstuv\n";
  DatasetOptions o;
  o.seq_len = 4;
  o.long_response = LongResponse::cut;
  const Dataset d = read_tsv(line, o);
  EXPECT_EQ(all_text(d.sample(0)), "stuv<|im_end|>");
  EXPECT_EQ(scored_text(d.sample(0)), "tuv<|im_end|>");  // nothing predicts the s
  EXPECT_EQ(d.counts().truncated_responses, 1);
  EXPECT_EQ(d.counts().lost_response_tokens, 1);
  EXPECT_NE(d.summary().find("lose 1 tokens of what should be learned"), std::string::npos);
  o.seq_len = 3;
  EXPECT_EQ(scored_text(read_tsv(line, o).sample(0)), "uv<|im_end|>");
  EXPECT_EQ(read_tsv(line, o).counts().lost_response_tokens, 2);
}

TEST(Dataset, LongConversationsLoseTheirFirstTurns) {
  DatasetOptions o;
  o.seq_len = 5;
  const Dataset d = read_jsonl(
      R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "rst"},)"
      R"({"role": "user", "content": "b"}, {"role": "assistant", "content": "xyz"}]})",
      o);
  EXPECT_EQ(scored_text(d.sample(0)), "xyz<|im_end|>");
  EXPECT_EQ(d.counts().truncated_responses, 1);
  EXPECT_EQ(d.counts().lost_response_tokens, 4);
}

TEST(Dataset, CountsAndSummary) {
  DatasetOptions o;
  o.bad_lines = BadLines::skip;
  const Dataset d = read_tsv("a\tb\n# c\nbad\na\tb\nc\td\na\tb", o);
  const DatasetCounts& c = d.counts();
  EXPECT_EQ(c.lines, 6);
  EXPECT_EQ(c.samples, 4);
  EXPECT_EQ(c.skipped, 1);
  EXPECT_EQ(c.duplicates, 2);
  EXPECT_EQ(c.scored, 8);  // a letter and the end each
  EXPECT_EQ(c.tokens, 4 * d.sample(0).rows());
  EXPECT_EQ(c.longest, int64_t(d.sample(0).ids.size()));
  EXPECT_EQ(c.truncated, 0);
  EXPECT_EQ(d.most_rows(), d.sample(0).rows());
  EXPECT_EQ(d.most_scored(), 2);
  EXPECT_EQ(d.most_segments(), 1);
  EXPECT_EQ(d.summary(), fmt::format("4 samples from 6 lines: {} tokens, 8 of them scored; the "
                                     "longest has {} tokens\n2 are repeated\n1 bad lines were "
                                     "skipped",
                                     c.tokens, c.longest));
}

TEST(Dataset, HashIsOfTheContent) {
  const uint64_t base = read_tsv("a\tb\nc\td\n").content_hash();
  EXPECT_EQ(read_tsv("# x\r\n a\t b\r\nc\td").content_hash(), base);
  EXPECT_EQ(read_jsonl(R"({"prompt": "a", "target": "b"})"
                       "\n"
                       R"({"response": "d", "prompt": "c"})")
                .content_hash(),
            base);
  EXPECT_NE(read_tsv("c\td\na\tb\n").content_hash(), base);      // order
  EXPECT_NE(read_tsv("a\tb\nc\te\n").content_hash(), base);      // a token
  EXPECT_NE(read_tsv("a\tb\n").content_hash(), base);            // a sample less
  EXPECT_NE(read_tsv("a\tb\nc\td\na\tb").content_hash(), base);  // a sample more
  DatasetOptions o;
  o.end_token = EndToken::leave_out;
  EXPECT_NE(read_tsv("a\tb\nc\td\n", o).content_hash(), base);
  o = {};
  o.seq_len = 4;  // cuts
  EXPECT_NE(read_tsv("a\tb\nc\td\n", o).content_hash(), base);
  o.seq_len = 1000;  // does not
  EXPECT_EQ(read_tsv("a\tb\nc\td\n", o).content_hash(), base);
}

// The same tokens, but divided and scored differently.
TEST(Dataset, HashSeesWindowsAndFlags) {
  EXPECT_NE(pretrain("abcdef\n", 2, "d.txt").content_hash(),
            pretrain("abcdef\n", 3, "d.txt").content_hash());
  const std::string two_turns =
      R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},)"
      R"({"role": "user", "content": "c"}, {"role": "assistant", "content": "d"}]})";
  const Dataset tuned = read_jsonl(two_turns);
  DatasetOptions o;
  o.document_end = *mini().im_end();
  o.end_token = EndToken::leave_out;
  const Dataset all = pretrain(two_turns, 511, "d.jsonl", o);
  ASSERT_EQ(ids_of(tuned.sample(0)), ids_of(all.sample(0)));
  EXPECT_NE(tuned.content_hash(), all.content_hash());
}

TEST(Dataset, ThreadsDoNotChangeTheResult) {
  std::string text;
  for (int i = 0; i < 10000; ++i) text += fmt::format("prompt {}\thello {}\n", i % 997, i * 7919);
  DatasetOptions o;
  o.threads = 1;
  const Dataset one = read_tsv(text, o);
  o.threads = 3;
  const Dataset three = read_tsv(text, o);
  EXPECT_EQ(one.content_hash(), three.content_hash());
  EXPECT_EQ(one.size(), 10000);
  for (int64_t i = 0; i < one.size(); i += 777) {
    EXPECT_EQ(ids_of(one.sample(i)), ids_of(three.sample(i)));
  }
  EXPECT_EQ(scored_text(three.sample(9999)), fmt::format("hello {}<|im_end|>", 9999 * 7919));
}

TEST(Pretrain, ParagraphsAreDocuments) {
  const Dataset d = pretrain("\xef\xbb\xbf\n  ab\r\n cd\r\n\r\n \n# e\tf\n\n\ngh", 100, "d.txt");
  EXPECT_EQ(d.counts().documents, 3);
  EXPECT_EQ(d.counts().lines, 9);
  ASSERT_EQ(d.size(), 1);
  // Inner line ends and the indentation stay; '#' and tabs mean nothing here.
  EXPECT_EQ(all_text(d.sample(0)), "  ab\n cd<|endoftext|># e\tf<|endoftext|>gh<|endoftext|>");
  DatasetOptions o;
  o.documents = Documents::whole_file;
  const Dataset whole = pretrain("\n \nab\n\ncd\n\n", 100, "d.txt", o);
  EXPECT_EQ(whole.counts().documents, 1);
  EXPECT_EQ(all_text(whole.sample(0)), "ab\n\ncd<|endoftext|>");
}

TEST(Pretrain, EveryTokenIsScoredButTheFirstOfADocument) {
  const Dataset d = pretrain("ab\n\ncde\n", 100, "d.txt");
  const Sample s = d.sample(0);  // a b end c d e end
  ASSERT_EQ(s.ids.size(), 7u);
  const std::vector<uint8_t> want = {kSegmentStart, kScored, kScored, kSegmentStart,
                                     kScored,       kScored, kScored};
  EXPECT_EQ(std::vector<uint8_t>(s.flags.begin(), s.flags.end()), want);
  EXPECT_EQ(scored_text(s), "b<|endoftext|>de<|endoftext|>");
  EXPECT_EQ(d.counts().tokens, 6);
  EXPECT_EQ(d.counts().scored, 5);
  EXPECT_EQ(d.most_segments(), 2);
  EXPECT_EQ(d.counts().longest, 4);
}

TEST(Pretrain, WindowsOverlapByOneTokenAndCoverTheStream) {
  const std::string text = "abcdefghij\n\nklm\n\nno\n\npqrstuvwxyz\n";
  const Dataset whole = pretrain(text, 1000, "d.txt");
  const auto stream = ids_of(whole.sample(0));
  for (const int64_t window :
       {2, 3, 4, 7, int(stream.size()) - 2, int(stream.size()) - 1, int(stream.size())}) {
    const Dataset d = pretrain(text, window, "d.txt");
    size_t at = 0;
    for (int64_t i = 0; i < d.size(); ++i, at += size_t(window)) {
      const auto ids = ids_of(d.sample(i));
      const size_t n = std::min(size_t(window) + 1, stream.size() - at);
      ASSERT_GE(n, 2u);
      EXPECT_EQ(ids, std::vector<int32_t>(stream.begin() + std::ptrdiff_t(at),
                                          stream.begin() + std::ptrdiff_t(at + n)));
      if (i + 1 < d.size()) {
        EXPECT_EQ(d.sample(i).rows(), window);
      }
    }
    // Every token is predicted once, except the first ones of documents.
    EXPECT_EQ(d.counts().tokens, int64_t(stream.size()) - 1);
    EXPECT_EQ(d.counts().scored, whole.counts().scored);
    EXPECT_EQ(d.counts().scored, int64_t(stream.size()) - 4);
  }
}

TEST(Pretrain, JsonlTextsAndConversations) {
  const Dataset d = pretrain("{\"text\": \"ab\\n\\ncd\"}\n{\"prompt\": \"q\", \"target\": \"r\"}\n",
                             100, "d.jsonl");
  EXPECT_EQ(d.counts().documents, 2);
  EXPECT_EQ(all_text(d.sample(0)),
            "ab\n\ncd<|endoftext|><|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n"
            "r<|im_end|><|endoftext|>");
  EXPECT_EQ(d.counts().scored, d.counts().tokens - 1);  // only the second document's first
  EXPECT_EQ(all_text(pretrain("q\tr\n", 100, "d.tsv").sample(0)),
            "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\nr<|im_end|><|endoftext|>");
}

TEST(Pretrain, AnotherTokenCanEndDocuments) {
  DatasetOptions o;
  o.document_end = *mini().im_end();
  EXPECT_EQ(all_text(pretrain("ab", 9, "d.txt", o).sample(0)), "ab<|im_end|>");
}

TEST(Dataset, ReadsFiles) {
  const auto path = std::filesystem::temp_directory_path() /
                    fmt::format("nibble_dataset_test.{}.tsv", ::getpid());
  std::ofstream(path, std::ios::binary) << "a\tb\n";
  EXPECT_EQ(load_dataset(path, mini(), {}).content_hash(), read_tsv("a\tb\n").content_hash());
  std::filesystem::remove(path);
  throws_saying<FormatError>([&] { load_dataset(path, mini(), {}); }, {path.string()});
}

// The predecessor's data with the real tokenizer.
TEST(Dataset, PredecessorData) {
  NIBBLE_SHARED_FILE_OR_SKIP(tokenizer, "qwen3/tokenizer.json");
  NIBBLE_SHARED_FILE_OR_SKIP(data, "data");
  const Tokenizer t = Tokenizer::load(tokenizer);
  const auto samples = [&](const char* file) { return load_dataset(data / file, t, {}).size(); };
  EXPECT_EQ(samples("whoami-1000.tsv"), 1000);
  EXPECT_EQ(samples("whoami-1000-natural.tsv"), 1000);
  EXPECT_EQ(samples("stageB-mixed-30-70.tsv"), 1000);
  EXPECT_EQ(samples("whoami-mixed-safe.tsv"), 590);
  EXPECT_EQ(samples("stageB-curriculum-v5.tsv"), 10);
  EXPECT_EQ(samples("stageG-balanced-mix-v1.tsv"), 198);
  EXPECT_EQ(samples("stageB-curriculum-v4.tsv"), 16);  // its header row is none
  const Dataset d = load_dataset(data / "stageH-targeted-overfit.tsv", t, {});
  EXPECT_EQ(t.decode(d.sample(0).ids),
            "<|im_start|>user\n你是誰<|im_end|>\n<|im_start|>assistant\n我是 F# 之神<|im_end|>");
  EXPECT_EQ(d.sample(0).ids.back(), 151645);
  DatasetOptions o;
  o.use = DataUse::pretrain;
  o.documents = Documents::whole_file;
  EXPECT_EQ(load_dataset(data / "train-inputs.txt", t, o).counts().documents, 1);
}

}  // namespace
}  // namespace nibble::test
