// SPDX-License-Identifier: MIT
// Data in the shapes people have it in: every one gives the tokens of the equivalent messages file,
// and what is broken is named with its place.
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "core/file.h"
#include "data/read/gzip.h"
#include "train/dataset_support.h"

namespace nibble::test {
namespace {

namespace fs = std::filesystem;

class ShapesFolder {
 public:
  ShapesFolder()
      : path_(fs::temp_directory_path() / ("nibble-shapes-" + std::to_string(getpid()))) {
    fs::remove_all(path_);
    fs::create_directories(path_);
  }
  ~ShapesFolder() { fs::remove_all(path_); }
  fs::path write(const std::string& name, const std::string& text) const {
    fs::create_directories((path_ / name).parent_path());
    replace_file(path_ / name, text);
    return path_ / name;
  }

 private:
  fs::path path_;
};

// A gzip file whose text is stored, not compressed.
std::string stored_gzip(const std::string& text) {
  uint32_t crc = ~0u;
  for (const char x : text) {
    crc ^= uint8_t(x);
    for (int k = 0; k < 8; ++k) crc = (crc & 1) != 0 ? 0xedb88320u ^ (crc >> 1) : crc >> 1;
  }
  crc = ~crc;
  std::string out("\x1f\x8b\x08\0\0\0\0\0\0\x03\x01", 11);
  const auto put = [&](uint32_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) out += char(uint8_t(value >> (8 * i)));
  };
  put(uint32_t(text.size()), 2);
  put(~uint32_t(text.size()), 2);
  out += text;
  put(crc, 4);
  put(uint32_t(text.size()), 4);
  return out;
}

// 200,000 zero bytes.
const std::string kBomb(
    "\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\xed\xc1\x31\x01\x00\x00\x00\xc2\xa0\xf5\x4f\x6d"
    "\x06\x7f\xa0\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
    "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
    "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
    "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
    "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
    "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
    "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
    "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
    "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x80\xd7"
    "\x00\x7b\x58\xe0\x5c\x40\x0d\x03\x00",
    229);

void same_tokens(const Dataset& got, const Dataset& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (int64_t i = 0; i < want.size(); ++i) {
    const Sample a = got.sample(i), b = want.sample(i);
    EXPECT_TRUE(std::ranges::equal(a.ids, b.ids)) << what << ": " << all_text(a);
    EXPECT_TRUE(std::ranges::equal(a.flags, b.flags)) << what << ": " << scored_text(a);
  }
  EXPECT_EQ(got.content_hash(), want.content_hash()) << what;
}

const std::string kMessages =
    R"({"messages": [{"role": "user", "content": "hello, \"you\""}, {"role": "assistant", "content": "world\n你"}]}
{"messages": [{"role": "user", "content": "a\nb"}, {"role": "assistant", "content": "c"}]}
)";
const std::string kCsv =
    "Prompt,Completion\r\n\"hello, \"\"you\"\"\",\"world\n你\"\r\n\"a\nb\",c\r\n";

TEST(DataShapes, EachGivesTheTokensOfTheMessagesFile) {
  const Dataset want = read_jsonl(kMessages);
  ASSERT_EQ(want.size(), 2);
  EXPECT_EQ(scored_text(want.sample(0)), "world\n你<|im_end|>");
  const std::vector<std::pair<std::string, std::string>> all = {
      {"sharegpt.jsonl",
       R"({"conversations": [{"from": "human", "value": "hello, \"you\""}, {"from": "gpt", "value": "world\n你"}]}
{"conversations": [{"from": "human", "value": "a\nb"}, {"from": "gpt", "value": "c"}]})"},
      {"alpaca.json", R"([
  {"instruction": "hello, \"you\"", "input": "", "output": "world\n你"},
  {"instruction": "a", "input": "b", "output": "c"}
])"},
      {"pairs.jsonl", R"({"prompt": "hello, \"you\"", "completion": "world\n你"}
{"question": "a\nb", "answer": "c"})"},
      {"chat.jsonl",  // what chat --tee-jsonl writes
       R"({"ts":"2026-11-15 09:30:00","messages":[{"role":"user","text":"hello, \"you\""}],"output":"world\n你"}
{"ts":"2026-11-15 09:31:00","messages":[{"role":"user","text":"a\nb"}],"output":"c"})"},
      {"array.json", "[" + kMessages.substr(0, kMessages.find('\n')) + "," +
                         kMessages.substr(kMessages.find('\n')) + "]"},
      {"lines.json", kMessages},
      {"table.csv", kCsv},
      {"alpaca.csv", "instruction,input,output\n\"hello, \"\"you\"\"\",,\"world\n你\"\na,b,c\n"}};
  for (const auto& [name, text] : all) same_tokens(read(text, name), want, name);
}

TEST(DataShapes, SystemAndEarlierTurns) {
  const Dataset want = read_jsonl(
      R"({"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}, {"role": "assistant", "content": "d"}]})");
  same_tokens(
      read(
          R"({"conversations": [{"from": "system", "value": "s"}, {"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}, {"from": "human", "value": "c"}, {"from": "gpt", "value": "d"}]})",
          "s.jsonl"),
      want, "ShareGPT");
  same_tokens(
      read(R"([{"system": "s", "instruction": "c", "output": "d", "history": [["a", "b"]]}])",
           "a.json"),
      want, "Alpaca with a history");
}

TEST(DataShapes, CompressedFilesAndFoldersOfFiles) {
  const Dataset want = read_jsonl(kMessages);
  const ShapesFolder dir;
  same_tokens(load_dataset(dir.write("z.jsonl.gz", stored_gzip(kMessages)), mini(), {}), want,
              "gz");
  same_tokens(load_dataset(dir.write("z.csv.gz", stored_gzip(kCsv)), mini(), {}), want, "csv.gz");
  const size_t half = kMessages.find('\n') + 1;
  dir.write("f/1.jsonl", kMessages.substr(0, half));
  dir.write("f/.hidden.jsonl", "nonsense");
  dir.write("f/README.md", "passed over");
  const fs::path last = dir.write("f/2/b.csv", "prompt,completion\n\"a\nb\",c\n");
  const Dataset folder = load_dataset(last.parent_path().parent_path(), mini(), {});
  same_tokens(folder, want, "folder");
  EXPECT_EQ(folder.counts().files, 2);
  DatasetOptions strict;
  strict.extra = ExtraKeys::refuse;
  throws_saying<UsageError>([&] { load_dataset(last.parent_path().parent_path(), mini(), strict); },
                            {"README.md", "--strict-data"});
}

TEST(DataShapes, KeysBesideAreCountedOrRefused) {
  const std::string text =
      "{\"id\": 1, \"prompt\": \"a\", \"target\": \"b\"}\n"
      "{\"id\": 2, \"prompt\": \"c\", \"target\": \"d\", \"source\": \"x\"}\n";
  const std::string said = read_jsonl(text).counts().ignored.text();
  EXPECT_NE(said.find("\"id\" in 2 lines"), said.npos) << said;
  EXPECT_NE(said.find("\"source\" in 1 line"), said.npos) << said;
  EXPECT_EQ(read_jsonl(text).counts().samples, 2);
  DatasetOptions strict;
  strict.extra = ExtraKeys::refuse;
  throws_saying<FormatError>([&] { read_jsonl(text, strict); },
                             {"d.jsonl:1", "\"id\"", "--strict-data"});
  throws_saying<FormatError>(
      [&] {
        read_jsonl(
            R"({"messages": [{"role": "user", "content": "a", "name": "x"}, {"role": "assistant", "content": "b"}]})",
            strict);
      },
      {"d.jsonl:1", "messages[].name"});
}

TEST(DataShapes, WhatIsBrokenIsNamedWithItsPlace) {
  const auto refused = [](const std::string& name, const std::string& text,
                          const std::vector<std::string>& says) {
    throws_saying<FormatError>([&] { read(text, name); }, says);
  };
  refused("d.csv", "prompt,completion\na,b\na,b,c\n", {"d.csv:3", "3 fields", "2 columns"});
  refused("d.csv", "prompt,completion\na,\"b\n", {"d.csv", "line 2", "not closed"});
  refused("d.csv", "prompt,completion\na,\"b\"c\n", {"d.csv:2", "closing quotation mark"});
  refused("d.csv", "prompt;completion\na;b\n", {"d.csv", "semicolons"});
  refused("d.csv", "prompt,prompt\na,b\n", {"d.csv", "twice"});
  refused("d.json", "[{\"prompt\": \"a\",\n", {"d.json", "line 1", "cut off"});
  refused("d.json", "[\n{\"prompt\": \"a\", \"target\": \"b\"}\n{}]", {"d.json", "line 3"});
  refused("d.json", "[1,\n2]", {"d.json:1"});
  refused("d.jsonl", "{\"messages\": [{\"role\": \"pirate\", \"content\": \"a\"}]}",
          {"d.jsonl:1", "pirate", "assistant (gpt, model)"});
  refused("d.jsonl", "{\"prompt\": \"a\", \"question\": \"b\", \"answer\": \"c\"}",
          {"d.jsonl:1", "both"});
  const std::string deep = std::string(200000, '[') + std::string(200000, ']');
  refused("d.json", "[" + deep + "]", {"d.json:1", "nested deeper"});
  refused("d.jsonl", "{\"messages\": " + deep + "}", {"d.jsonl:1", "nested deeper"});
  refused("d.json", std::string(200000, '['), {"d.json", "cut off"});
}

TEST(DataShapes, GzipThatIsCutOffDamagedOrABomb) {
  const std::string whole = stored_gzip("a\tb\n");
  EXPECT_EQ(gunzip(whole, "f"), "a\tb\n");
  EXPECT_EQ(gunzip(whole + whole, "f"), "a\tb\na\tb\n");  // two members
  for (size_t n = 2; n < whole.size(); ++n) {
    throws_saying<FormatError>([&] { gunzip(whole.substr(0, n), "data.gz"); },
                               {"data.gz", "cut off"});
  }
  std::string damaged = whole;
  damaged[16] = 'x';
  throws_saying<FormatError>([&] { gunzip(damaged, "data.gz"); }, {"data.gz", "damaged"});
  EXPECT_EQ(gunzip(kBomb, "b").size(), 200000u);
  throws_saying<FormatError>(
      [&] {
        gunzip(kBomb, "b.gz", {1 << 30, 200, 1 << 10});
      },
      {"b.gz", "200 times"});
  throws_saying<FormatError>(
      [&] {
        gunzip(kBomb, "b.gz", {1 << 16, 200, 1 << 30});
      },
      {"b.gz", "65536 bytes"});
  const ShapesFolder dir;
  throws_saying<FormatError>(
      [&] { load_dataset(dir.write("c.tsv.gz", whole.substr(0, 20)), mini(), {}); },
      {"c.tsv.gz", "cut off"});
}

}  // namespace
}  // namespace nibble::test
