// SPDX-License-Identifier: MIT
// A hundred thousand brackets in every file that is JSON, TOML or has a header of it: an error with
// exit code 3, not the end of the stack.
#include "hostile/program.h"

namespace nibble::test {
namespace {

namespace fs = std::filesystem;

const std::string kDeepArrays(100'000, '[');

std::string deep_objects() {
  std::string text;
  for (int i = 0; i < 100'000; ++i) text += "{\"a\":";
  return text;
}

std::string closed(size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); }

class DeepText : public HostileTest {
 protected:
  void refused(const Words& words, const std::string& part = "nested deeper than 64") {
    const Ended r = run_program(words);
    EXPECT_EQ(r.code, 3) << words[0] << ": " << r.err;
    EXPECT_TRUE(contains(r.err, part)) << words[0] << ": " << r.err;
  }
  // Open, open objects, and well-formed to the end.
  static std::vector<std::string> deep_texts() {
    const std::string deep = closed(100'000);
    return {kDeepArrays, deep_objects(), deep, "{\"x\": " + deep + "}",
            // Fields that are looked at, written again, or shown in a message.
            R"({"state": "finished", "pid": 1, "model_type": "qwen3", "hidden_size": )" + deep +
                R"(, "last": )" + deep + "}"};
  }
};

TEST_F(DeepText, OfAModel) {
  for (const char* name : {"config.json", "tokenizer.json", "generation_config.json"}) {
    for (const std::string& text : deep_texts()) {
      const std::string m = copy_of_model("m");
      replace_file(fs::path(m) / name, text);
      const Ended r = run_program({"generate", "--model", m, "--prompt", "x"});
      EXPECT_EQ(r.code, 3) << name << ": " << r.err;
      fs::remove_all(m);
    }
  }
  const std::string m = copy_of_model("m");
  replace_file(fs::path(m) / "tokenizer_config.json", closed(100'000));
  refused({"generate", "--model", m, "--prompt", "x"}, "not a JSON object");
}

TEST_F(DeepText, OfWeights) {
  for (const std::string& text : deep_texts()) {
    const std::string header = "{\"w\":" + text;
    const uint64_t n = header.size();
    std::string bytes(reinterpret_cast<const char*>(&n), sizeof n);
    refused({"inspect", write("deep.safetensors", bytes + header)});
    refused({"inspect", write("model.safetensors.index.json", "{\"metadata\":" + text)});
  }
}

TEST_F(DeepText, OfRunConfigs) {
  std::string dotted = "a";
  for (int i = 0; i < 100'000; ++i) dotted += ".a";
  for (const std::string& text :
       {"seed = " + kDeepArrays, "[" + dotted + "]\n", dotted + " = 1\n",
        "seed = " + deep_objects(), "x = {" + dotted + " = 1}\n", std::string(100'000, '[')}) {
    refused({"init", "--run-config", write("run.toml", text)});
  }
  // What is deep in a string or a comment is not nested.
  const std::string harmless = "# " + kDeepArrays + "\nout = '''" + kDeepArrays + "'''\n";
  EXPECT_EQ(
      run_program({"init", "--print-config", "--run-config", write("run.toml", harmless)}).code, 0);
}

TEST_F(DeepText, OfLines) {
  for (const std::string& text : deep_texts()) {
    const std::string f = write("deep.jsonl", text + "\n");
    refused({"chat", "--model", model(), "--replay", f});
    refused({"tokenize", "--model", model(), "--jsonl", f});
    refused({"render", "--template", write("t.jinja", "x"), "--jsonl", f});
    refused(train_words({"--train-data", f}));
    refused({"generate", "--model", model(), "--prompt", "x", "--tools", f}, "not valid JSON");
    refused({"check", "--model", model(), "--probes", f});
  }
}

// One broken record does not hide the others.
TEST_F(DeepText, OfRecords) {
  ASSERT_EQ(run_program(train_words({"--steps", "1"})).code, 0);
  for (const char* name : {"status.json", "run.json", "metrics.jsonl", "memory.json"}) {
    for (const std::string& text : deep_texts()) {
      fs::remove_all(file("runs/bad"));
      fs::copy(file("runs/run"), file("runs/bad"), fs::copy_options::recursive);
      write(std::string("runs/bad/") + name, text);
      for (const Words& words : {Words{"runs", "list"}, Words{"runs", "show", "run"},
                                 Words{"runs", "export", "--markdown"}}) {
        Words all = words;
        all.insert(all.end(), {"--runs-dir", file("runs")});
        const Ended r = run_program(all);
        EXPECT_EQ(r.code, 0) << name << ": " << r.err;
        EXPECT_TRUE(contains(r.out, "run ") || contains(r.out, "run\n")) << r.out;
      }
      const Ended show = run_program({"runs", "show", "bad", "--runs-dir", file("runs")});
      EXPECT_TRUE(show.code == 0 || show.code == 3) << show.code << show.err;
      const Ended report = run_program({"runs", "report", "bad", "--runs-dir", file("runs")});
      EXPECT_TRUE(report.code == 0 || report.code == 3) << report.code << report.err;
    }
  }
  write("runs/chain/chain.json", closed(100'000));
  refused({"runs", "show", "chain", "--runs-dir", file("runs")});
}

}  // namespace
}  // namespace nibble::test
