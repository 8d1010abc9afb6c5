// SPDX-License-Identifier: MIT
// nibble generate for programs: --json, --messages, --batch; and models of Hugging Face's cache.
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/file.h"
#include "support/cli.h"
#include "support/toy_dir.h"

namespace nibble::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

class GenerateFiles : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    dir_ = new TemporaryDirectory("generate-files");
    write_toy_directory(dir_->path() / "m");
  }
  static void TearDownTestSuite() { delete dir_; }
  static std::string write(const std::string& name, const std::string& text) {
    replace_file(dir_->path() / name, text);
    return dir_->file(name);
  }
  static CliResult run(std::vector<std::string> args) {
    args.insert(args.begin(), {"generate", "--model", dir_->file("m"), "--max-tokens", "9"});
    return cli(args);
  }
  static json one(std::vector<std::string> args) {
    args.push_back("--json");
    const CliResult r = run(args);
    EXPECT_EQ(r.code, 0) << r.err;
    return json::parse(r.out);
  }
  static void refused(std::vector<std::string> args, int code, const std::string& says) {
    const CliResult r = run(std::move(args));
    EXPECT_EQ(r.code, code) << r.err;
    EXPECT_TRUE(contains(r.err, says)) << r.err;
    EXPECT_EQ(r.out, "");
  }
  static TemporaryDirectory* dir_;
};
TemporaryDirectory* GenerateFiles::dir_ = nullptr;

TEST_F(GenerateFiles, JsonHasWhatAProgramNeeds) {
  const json j = one({"--prompt", "hello"});
  const CliResult plain = run({"--prompt", "hello", "--print-ids"});
  std::string ids;
  for (const auto& id : j.at("ids")) ids += (ids.empty() ? "" : ",") + id.dump();
  EXPECT_EQ(plain.out.substr(plain.out.size() - ids.size() - 2), "\n" + ids + "\n");
  EXPECT_EQ(j.at("finish_reason"), "length");
  EXPECT_EQ(j.at("completion_tokens"), 9);
  EXPECT_GT(j.at("prompt_tokens"), 5);
  EXPECT_TRUE(j.at("text").is_string());
  EXPECT_GT(j.at("timing").at("prefill_ms"), 0);
  EXPECT_GT(j.at("timing").at("decode_tokens_per_second"), 0);
  refused({"--prompt", "x", "--json", "--echo"}, 2, "--echo");
}

TEST_F(GenerateFiles, JsonWithoutATokenizerIsOneLineWithoutAText) {
  fs::copy(dir_->path() / "m", dir_->path() / "bare");
  fs::remove(dir_->path() / "bare" / "tokenizer.json");
  const CliResult r = cli({"generate", "--model", dir_->file("bare"), "--input-ids", "1,2,3",
                           "--max-tokens", "4", "--json"});
  EXPECT_EQ(r.code, 0) << r.err;
  const json j = json::parse(r.out);  // and nothing after it
  EXPECT_TRUE(j.at("text").is_null());
  EXPECT_EQ(j.at("ids").size(), 4u);
}

TEST_F(GenerateFiles, MessagesAreAConversation) {
  const json want = one({"--prompt", "hello", "--system", "be brief"});
  const std::string list =
      R"([{"role": "system", "content": "be brief"}, {"role": "user", "content": "hello"}])";
  EXPECT_EQ(one({"--messages", write("a.json", list)}).at("ids"), want.at("ids"));
  EXPECT_EQ(one({"--messages", write("o.json", "{\"messages\":\n" + list + "}\n")}).at("ids"),
            want.at("ids"));
  refused({"--messages", write("b.json", "[{\"role\": \"user\",\n")}, 3, "b.json");
  refused({"--messages", write("c.json", R"([{"role": "user", "content": "a"},
              {"role": "assistant", "content": "b"}])")},
          3, "nothing to answer");
  refused({"--messages", write("d.json", R"({"prompt": "a"} {"prompt": "b"})")}, 3, "--batch");
  refused({"--messages", write("e.json", list), "--system", "x"}, 2, "--messages");
  refused({"--messages", dir_->file("a.json"), "--prompt", "x"}, 2, "once");
}

TEST_F(GenerateFiles, BatchAnswersEveryLineInItsOrder) {
  const std::string in = write("in.jsonl", R"({"id": "first", "prompt": "hello"}

{"prompt": "a much longer question than the first one, of several words"}
{"id": {"n": 3}, "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "x"}]}
)");
  const std::string out = dir_->file("out.jsonl");
  const CliResult r = run({"--batch", in, "--out", out});
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(r.out, "");
  std::vector<json> lines;
  std::istringstream text(read_text_file(out));
  for (std::string line; std::getline(text, line);) lines.push_back(json::parse(line));
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0].at("id"), "first");
  EXPECT_EQ(lines[1].at("id"), 3);  // the line's number
  EXPECT_EQ(lines[2].at("id").at("n"), 3);
  const std::vector<json> alone = {
      one({"--prompt", "hello"}),
      one({"--prompt", "a much longer question than the first one, of several words"}),
      one({"--prompt", "x", "--system", "s"})};
  for (size_t i = 0; i < 3; ++i) {
    for (const char* key : {"text", "ids", "finish_reason", "prompt_tokens"}) {
      EXPECT_EQ(lines[i].at(key), alone[i].at(key)) << i << " " << key;
    }
  }
  refused({"--batch", in, "--out", out}, 2, "out.jsonl");  // exists
  EXPECT_EQ(run({"--batch", in, "--out", out, "--force"}).code, 0);
  EXPECT_EQ(run({"--batch", in}).out, read_text_file(out));
  // Copies of the model that share the lines say the same, also what is drawn.
  const auto drawn = [&](const char* devices) {
    return run({"--batch", in, "--temperature", "1.2", "--device", devices}).out;
  };
  EXPECT_EQ(drawn("cpu,cpu"), drawn("cpu"));
  refused({"--prompt", "x", "--device", "cpu,cpu"}, 2, "generate --batch take several");
}

TEST_F(GenerateFiles, ABadLineIsNamedBeforeAnythingIsComputed) {
  const std::string good = "{\"prompt\": \"a\"}\n";
  const std::string out = dir_->file("never.jsonl");
  const auto bad = [&](const std::string& line, const std::string& says) {
    refused({"--batch", write("bad.jsonl", good + line), "--out", out}, 3, says);
    EXPECT_FALSE(fs::exists(out));
  };
  bad("{\"prompt\": 1}\n", "bad.jsonl:2");
  bad("nonsense\n", "bad.jsonl:2");
  bad("{\"prompt\": \"a\", \"target\": \"b\"}\n", "bad.jsonl:2");
  bad("{\"text\": \"a\"}\n", "--raw");
  EXPECT_EQ(run({"--batch", write("raw.jsonl", "{\"text\": \"a\"}\n"), "--raw"}).code, 0);
  refused(
      {"--batch", write("long.jsonl", good + "{\"prompt\": \"" + std::string(600, 'x') + "\"}")}, 2,
      "long.jsonl:2");
  refused({"--batch", write("k.jsonl", "{\"prompt\": \"a\", \"x\": 1}"), "--strict-data"}, 3,
          "k.jsonl:1");
  refused({"--batch", write("none.jsonl", "\n")}, 3, "no prompt");
  refused({"--out", "x"}, 2, "--batch");
}

TEST_F(GenerateFiles, AFolderOfHuggingFacesCacheIsAModel) {
  const TemporaryDirectory cache("hf-cache");
  const fs::path folder = cache.path() / "models--org--name";
  fs::create_directories(folder / "refs");
  fs::create_directories(folder / "blobs");
  fs::create_directories(folder / "snapshots" / "abc");
  fs::create_directories(folder / "snapshots" / "old");
  int n = 0;
  for (const auto& entry : fs::directory_iterator(dir_->path() / "m")) {
    const std::string blob = std::to_string(n++);  // as the cache has them: links to blobs
    fs::copy_file(entry.path(), folder / "blobs" / blob);
    fs::create_symlink("../../blobs/" + blob,
                       folder / "snapshots" / "abc" / entry.path().filename());
  }
  const auto ask = [](const std::string& model) {
    return cli({"generate", "--model", model, "--prompt", "hello", "--max-tokens", "9"});
  };
  EXPECT_EQ(ask(folder.string()).code, 2);  // two snapshots, and nothing says which
  replace_file(folder / "refs" / "main", "abc\n");
  const CliResult r = ask(folder.string());
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(r.out, ask(dir_->file("m")).out);
  replace_file(folder / "refs" / "main", "gone");
  EXPECT_TRUE(contains(ask(folder.string()).err, "download the model again"));

  ASSERT_EQ(setenv("HF_HUB_CACHE", cache.path().c_str(), 1), 0);
  EXPECT_TRUE(contains(ask("org/name").err, "--model " + folder.string()));
  const CliResult other = ask("org/other");
  unsetenv("HF_HUB_CACHE");
  EXPECT_EQ(other.code, 3);
  EXPECT_TRUE(contains(other.err, "hf download org/other --local-dir other")) << other.err;
}

}  // namespace
}  // namespace nibble::test
