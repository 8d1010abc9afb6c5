// SPDX-License-Identifier: MIT
// nibble render: its answers, its errors, and where a model's template is found.
#include "apps/cli_run.h"

namespace nibble::test {
namespace {

class Render : public testing::Test {
 protected:
  std::string file(const std::string& name, const std::string& text) {
    replace_file(dir_.file(name), text);
    return dir_.file(name);
  }
  TemporaryDirectory dir_{"render"};
};

TEST_F(Render, TextsAndErrors) {
  const std::string t = file("t.jinja", "{{ messages[0].content }} {{ strftime_now('%Y-%m-%d') }}");
  const std::string in = file("in.jsonl",
                              "{\"variables\": {\"messages\": [{\"content\": \"你好\"}]}}\n\n"
                              "{\"variables\": {\"messages\": []}}\n");
  const std::string want =
      "{\"text\":\"你好 2026-11-16\"}\n"
      "{\"error\":\"UndefinedError: list object has no element 0\"}\n";
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"render", "--jsonl", in, "--now", "2026-11-16"});
    return more;
  };
  EXPECT_EQ(cli_ok(with({"--template", t})), want);
  const std::string out = dir_.file("out.jsonl");
  EXPECT_EQ(cli_ok(with({"--template", t, "--out", out})), "");
  EXPECT_EQ(read_text_file(out), want);
  cli_fails(with({"--template", t, "--out", out}), 2, "exists");
  cli_ok(with({"--template", t, "--out", out, "--force"}));
  cli_fails(with({}), 2, "--template");
  cli_fails({"render", "--template", t, "--jsonl", in, "--now", "2026-02-30"}, 2, "no such day");
  cli_fails(with({"--template", file("bad.jinja", "a\n{% if %}")}), 3, "bad.jinja:2:7");
  cli_fails({"render", "--template", t, "--jsonl", file("x.jsonl", "{}\n")}, 3, "x.jsonl:1");
}

// chat_template.jinja wins over tokenizer_config.json, which knows the tokens' strings.
TEST_F(Render, TheModelsOwnTemplate) {
  const std::string in = file("in.jsonl", "{\"variables\": {\"messages\": []}}\n");
  file("tokenizer.json", mini_tokenizer_text());
  const std::vector<std::string> args = {"render", "--model", dir_.path().string(), "--jsonl", in};
  cli_fails(args, 3, "no chat template");
  file("tokenizer_config.json",
       "{\"bos_token\": {\"content\": \"<s>\"}, \"eos_token\": \"</s>\", \"chat_template\": "
       "\"{{ bos_token }}one{{ eos_token }}\"}");
  EXPECT_EQ(cli_ok(args), "{\"text\":\"<s>one</s>\"}\n");
  file("tokenizer_config.json",
       "{\"chat_template\": [{\"name\": \"tool_use\", \"template\": \"t\"}, {\"name\": "
       "\"default\", \"template\": \"d\"}]}");
  EXPECT_EQ(cli_ok(args), "{\"text\":\"d\"}\n");
  file("chat_template.jinja", "file");
  EXPECT_EQ(cli_ok(args), "{\"text\":\"file\"}\n");
}

}  // namespace
}  // namespace nibble::test
