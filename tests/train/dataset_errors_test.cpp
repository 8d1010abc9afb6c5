// SPDX-License-Identifier: MIT
// What becomes of bad data: an error that names file, line and remedy, or, when asked, a count.
#include "train/dataset_support.h"

#include <nlohmann/json.hpp>

namespace nibble::test {
namespace {

void refused(const std::string& text, const std::string& name, const std::vector<std::string>& says,
             const DatasetOptions& options = {}) {
  throws_saying<FormatError>([&] { read(text, name, options); }, says);
}

TEST(DatasetErrors, TsvLines) {
  refused("a\tb\n\nno tab here\n", "d.tsv", {"d.tsv:3: ", "no tab", "'no tab here'"});
  refused("a\tb\n\tonly target\n", "d.tsv", {"d.tsv:2: ", "the prompt is empty", "before the tab"});
  refused("only prompt\t\n", "d.tsv", {"d.tsv:1: ", "the target is empty", "after the tab"});
  refused("only prompt \t \r\n", "d.tsv", {"d.tsv:1: ", "the target is empty"});
  refused("{\"prompt\": \"a\"}\n", "d.tsv", {"d.tsv:1: ", "looks like JSON", ".jsonl"});
  refused("a\\tb\n", "d.tsv", {"d.tsv:1: ", "backslash"});
}

TEST(DatasetErrors, LongLinesAreShortened) {
  const std::string line(1000, 'x');
  throws_saying<FormatError>([&] { read_tsv(line); }, {"'" + line.substr(0, 60) + "...'"});
  // Cut between characters, and harmless on a terminal.
  std::string chinese;
  for (int i = 0; i < 100; ++i) chinese += "你";
  throws_saying<FormatError>([&] { read_tsv(chinese); }, {chinese.substr(0, 180) + "...'"});
  throws_saying<FormatError>([&] { read_tsv("\x1b[31mred"); }, {"'.[31mred'"});
}

TEST(DatasetErrors, AHeaderRowIsLeftOut) {
  for (const char* header : {"prompt\ttarget", "Input\tOutput", "QUESTION\tANSWER",
                             "# note\n\ninstruction \t response"}) {
    EXPECT_EQ(read_tsv(std::string(header) + "\na\tb\n").size(), 1) << header;
  }
  refused("prompt\ttarget\n", "d.tsv", {"d.tsv"});  // and nothing else
  // Only in the first data line, and only when both names fit.
  EXPECT_EQ(read_tsv("a\tb\nprompt\ttarget\n").size(), 2);
  EXPECT_EQ(read_tsv("question\tWhich one?\n").size(), 1);
  EXPECT_EQ(read_tsv("#prompt\ttarget\na\tb\n").size(), 1);
}

TEST(DatasetErrors, InvalidUtf8SaysWhere) {
  refused("a\tb\nc\xff\td\n", "d.tsv", {"d.tsv:2: ", "invalid UTF-8 at byte 5", "0xff"});
  refused(
      "\xef\xbb\xbf"
      "a\tb\xc3\n",
      "d.tsv", {"d.tsv:1: ", "at byte 6", "0xc3"});
  refused("{\"prompt\": \"\xe4\xbd\", \"target\": \"b\"}\n", "d.jsonl",
          {"d.jsonl:1: ", "invalid UTF-8 at byte 12", "0xe4"});
  refused(std::string("\xff\xfe"
                      "a\0\t\0b\0\n\0",
                      10),
          "d.tsv", {"d.tsv:1: ", "UTF-16"});
  refused(std::string("a\0\t\0b\0\n\0", 8), "d.tsv", {"d.tsv:1: ", "zero byte at byte 1"});
  DatasetOptions o;
  o.use = DataUse::pretrain;  // the line of the byte, not of the document
  refused("a\n\nb\nc\nd\x80\n", "d.txt", {"d.txt:5: ", "invalid UTF-8 at byte 8", "0x80"}, o);
}

TEST(DatasetErrors, NothingToLearnFrom) {
  refused("", "d.tsv", {"d.tsv: ", "nothing to learn from", "0 lines"});
  refused("\n# only\n\n", "d.tsv", {"nothing to learn from", "3 lines"});
  refused("\xef\xbb\xbf", "d.jsonl", {"nothing to learn from"});
  DatasetOptions o;
  o.bad_lines = BadLines::skip;
  refused("a\nb\n", "d.tsv", {"nothing to learn from", "2 lines", "2 were bad"}, o);
  o.use = DataUse::pretrain;
  refused(" \n\n", "d.txt", {"nothing to learn from"}, o);
}

TEST(DatasetErrors, ResponseLongerThanTheWindow) {
  DatasetOptions o;
  o.seq_len = 4;
  refused("q\tab\nq\tabcd\n", "d.tsv",
          {"d.tsv:2: ", "the response has 5 tokens", "window of 4", "truncate"}, o);
  o.bad_lines = BadLines::skip;
  const Dataset d = read_tsv("q\tab\nq\tabcd\n", o);
  EXPECT_EQ(d.size(), 1);
  EXPECT_EQ(d.counts().skipped, 1);
  EXPECT_EQ(d.counts().duplicates, 0);
}

TEST(DatasetErrors, BadLinesCanBeCountedInstead) {
  DatasetOptions o;
  o.bad_lines = BadLines::skip;
  const Dataset d = read_tsv("prompt\ttarget\nno tab\na\tb\n\tx\nc\xff\td\ny\t\ne\tf\n", o);
  EXPECT_EQ(d.size(), 2);
  EXPECT_EQ(d.counts().skipped, 4);  // a header row is left out, not skipped
  const Dataset j = read_jsonl("{\"prompt\": \"a\", \"target\": \"b\"}\n{\n[]\n", o);
  EXPECT_EQ(j.size(), 1);
  EXPECT_EQ(j.counts().skipped, 2);
  o.use = DataUse::pretrain;
  const Dataset t = read("a\nb\xff\n\nc\n", "d.txt", o);  // a document as a whole
  EXPECT_EQ(t.counts().documents, 1);
  EXPECT_EQ(t.counts().skipped, 1);
}

TEST(DatasetErrors, TheFirstBadLineIsNamedWhateverTheThreads) {
  std::string text;
  for (int i = 1; i <= 5000; ++i) text += i % 1000 == 0 ? "bad\n" : "a\tb\n";
  DatasetOptions o;
  o.threads = 3;
  for (int i = 0; i < 5; ++i) refused(text, "d.tsv", {"d.tsv:1000: "}, o);
}

TEST(DatasetErrors, JsonlLines) {
  const auto bad = [](const std::string& line, const std::vector<std::string>& says) {
    std::vector<std::string> all = {"d.jsonl:2: "};
    all.insert(all.end(), says.begin(), says.end());
    refused("{\"prompt\": \"a\", \"target\": \"b\"}\n" + line + "\n", "d.jsonl", all);
  };
  bad("{\"prompt\": \"a\", ", {"not valid JSON", "character"});
  bad("a\tb", {"not valid JSON"});
  bad("# comment", {"not valid JSON"});
  bad("{\"prompt\": 1e999, \"target\": \"b\"}", {"not valid JSON"});
  bad("[1]", {"not a JSON object"});
  bad("{}", {"expected \"messages\"", "\"prompt\" and \"completion\""});
  bad(R"({"text": "a"})", {"for pretraining"});
  bad(R"({"prompt": "a"})", {"without its answer", "\"target\", \"response\""});
  bad(R"({"prompt": "a", "target": "b", "response": "c"})", {"both \"target\" and \"response\""});
  bad(R"({"prompt": "a", "target": 5})", {"\"target\" is not a string"});
  bad(R"({"prompt": null, "target": "b"})", {"\"prompt\" (null)"});
  bad(R"({"prompt": " ", "target": "b"})", {"\"prompt\" is empty"});
  bad(R"({"prompt": "a", "target": ""})", {"\"target\" is empty"});
  bad(R"({"prompt": "a", "target": "b", "prompt": "c"})", {"the key \"prompt\" twice"});
  bad(R"({"prompt": "a", "target": "b"} {})", {"not valid JSON"});
}

TEST(DatasetErrors, JsonlConversations) {
  const auto bad = [](const std::string& messages, const std::vector<std::string>& says) {
    std::vector<std::string> all = {"d.jsonl:1: "};
    all.insert(all.end(), says.begin(), says.end());
    refused("{\"messages\": " + messages + "}\n", "d.jsonl", all);
  };
  const std::string user = R"({"role": "user", "content": "a"})";
  const std::string assistant = R"({"role": "assistant", "content": "b"})";
  bad("{}", {"\"messages\" is not an array"});
  bad("[]", {"\"messages\" is empty"});
  bad("[7]", {"a message is not a JSON object"});
  bad("[" + user + "]", {"the last message is from 'user'"});
  bad("[" + user + "," + assistant + "," + user + "]", {"the last message is from 'user'"});
  bad("[" + assistant + "]", {"begins with the assistant"});
  bad("[" + user + "," + assistant + "," + assistant + "]", {"messages 2 and 3", "join them"});
  bad(R"([{"role": "robot", "content": "a"}, )" + assistant + "]", {"unknown role 'robot'"});
  bad(R"([{"role": "user", "content": " "}, )" + assistant + "]", {"message 1 (user) is empty"});
  bad("[" + user + R"(, {"role": "assistant", "content": ""}])",
      {"message 2 (assistant) is empty"});
  bad(R"([{"role": "user", "content": [1]}, )" + assistant + "]", {"\"content\"", "not text"});
  bad(R"([{"content": "a"}, )" + assistant + "]", {"no \"role\""});
  bad("[" + user + "," + assistant + "], \"tools\": 3", {"\"tools\" is not an array"});
  bad("[" + user + "," + assistant + "], \"tools\": [3]", {"not an object"});
}

TEST(DatasetErrors, HostileJsonIsRefusedAndDoesNoHarm) {
  const std::string deep(100000, '[');
  refused("{\"messages\": " + deep + "\n", "d.jsonl", {"nested deeper"});
  std::string wide = "{";
  for (int i = 0; i < 3000; ++i) wide += fmt::format("\"k{}\": 1, ", i);
  refused(wide + "\"z\": 1}", "d.jsonl", {"over 1024 keys"});
}

// The newline of the generation prompt stays a token of its own, whatever the reply begins with.
TEST(DatasetErrors, ToolCallsAfterWhiteSpace) {
  const Tokenizer t = Tokenizer::parse(mini_tokenizer_text({{"\n", "\n"}}), "joins newlines");
  const std::string line =
      R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "\nb",)"
      R"( "tool_calls": [{"name": "f", "arguments": {}}]}]})";
  const Dataset d = parse_dataset(line, "d.jsonl", t, {});
  const Sample s = d.sample(0);
  const auto first = std::find(s.flags.begin(), s.flags.end(), kScored) - s.flags.begin();
  EXPECT_EQ(t.decode(s.ids.first(size_t(first))),
            "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(t.decode(s.ids.subspan(size_t(first))),
            "\nb\n<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call><|im_end|>");
}

TEST(DatasetErrors, Options) {
  const auto bad = [](const std::string& name, const DatasetOptions& o,
                      const std::vector<std::string>& says) {
    throws_saying<UsageError>([&] { read("a\tb\n", name, o); }, says);
  };
  bad("d.xls", {}, {"d.xls", ".tsv", "jsonl"});
  bad("d", {}, {"the name does not tell"});
  DatasetOptions o;
  o.format = DataFormat::tsv;
  EXPECT_EQ(read("a\tb\n", "d.csv", o).size(), 1);  // said explicitly
  o.format = DataFormat::text;
  bad("d.txt", o, {"plain text", "pretraining"});
  o = {};
  o.seq_len = 1;
  bad("d.tsv", o, {"window of 1", "at least 2"});
  o.seq_len = int64_t(1) << 31;
  bad("d.tsv", o, {"below 2^31"});
  o = {};
  o.use = DataUse::pretrain;
  o.document_end = -1;
  bad("d.tsv", o, {"token -1"});
}

TEST(DatasetErrors, TokenizersWithoutTheTokens) {
  Json j = mini_tokenizer();
  j["added_tokens"] = Json::array();
  const Tokenizer bare = Tokenizer::parse(j.dump(), "bare");
  DatasetOptions o;
  throws_saying<UsageError>([&] { parse_dataset("a\tb", "d.tsv", bare, o); }, {"<|im_start|>"});
  o.use = DataUse::pretrain;
  throws_saying<UsageError>([&] { parse_dataset("ab", "d.txt", bare, o); }, {"<|endoftext|>"});
  o.document_end = 10;
  EXPECT_EQ(parse_dataset("ab", "d.txt", bare, o).size(), 1);
  throws_saying<UsageError>([&] { parse_dataset("a\tb", "d.tsv", bare, o); }, {"<|im_start|>"});
  throws_saying<FormatError>(
      [&] { parse_dataset(R"({"prompt": "a", "target": "b"})", "d.jsonl", bare, o); },
      {"d.jsonl:1: ", "<|im_start|>"});
}

TEST(DatasetErrors, TokenizersWithOneOfTheTokens) {
  for (const std::string missing : {"<|im_start|>", "<|im_end|>"}) {
    Json j = mini_tokenizer();
    int renamed = 0;
    for (Json& token : j["added_tokens"]) {
      if (token["content"] != missing) continue;
      token["content"] = "<|another|>";
      ++renamed;
    }
    ASSERT_EQ(renamed, 1);
    const Tokenizer half = Tokenizer::parse(j.dump(), "half");
    throws_saying<UsageError>([&] { parse_dataset("a\tb", "d.tsv", half, {}); },
                              {"has no " + missing});
  }
}

}  // namespace
}  // namespace nibble::test
