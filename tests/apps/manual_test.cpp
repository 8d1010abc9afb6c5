// SPDX-License-Identifier: MIT
// --version, and what is made of the option declarations: manual pages and completions. The shells
// and manual readers themselves are asked in completions_test.sh and manual_test.sh.
#include "apps/manual/manual.h"

#include <algorithm>
#include <regex>

#include "apps/cli_run.h"
#include "apps/command.h"
#include "apps/completions/completions.h"
#include "apps/version.h"
#include "support/paths.h"

namespace nibble::test {
namespace {

TEST(Version, FirstLineIsForScriptsAndTheOthersSayWhatItIsMadeOf) {
  const std::string text = cli_ok({"--version"});
  EXPECT_TRUE(std::regex_search(
      text, std::regex("^nibble [0-9]+\\.[0-9]+\\.[0-9]+ \\(commit [0-9a-z-]+\\)\n")))
      << text;
  for (const char* part : {"\ncuda ", "\ncpu ", "\ncompiler "}) {
    EXPECT_TRUE(contains(text, part)) << part << " in: " << text;
  }
  EXPECT_EQ(contains(text, "without CUDA"), std::string(kCudaVersion).empty());
}

// Plain letters: what a page says, whatever its roff.
std::string unescaped(std::string text) {
  for (const auto& [from, to] : {std::pair{"\\-", "-"}, {"\\fB", ""}, {"\\fI", ""}, {"\\fR", ""}}) {
    for (size_t i = 0; (i = text.find(from, i)) != std::string::npos;) {
      text.replace(i, std::string(from).size(), to);
    }
  }
  return text;
}

TEST(Manual, EveryOptionOfEveryCommandIsInItsPage) {
  for (const Command& c : commands()) {
    const std::string page = unescaped(manual_page(c));
    EXPECT_EQ(cli_ok({"man", c.name}), manual_page(c));
    with_options(c, [&](const Fields& fields) {
      for (const Field& f : fields.all()) {
        EXPECT_TRUE(contains(page, "\n.TP\n" + f.info.flag)) << c.name << " " << f.info.flag;
      }
    });
  }
}

TEST(Manual, TheFirstPageListsEveryCommandAndExitCode) {
  const std::string page = unescaped(cli_ok({"man"}));
  for (const Command& c : commands()) {
    EXPECT_TRUE(contains(page, "nibble-" + c.name + "(1)\n" + c.summary)) << c.name;
  }
  for (const char* code : {"0", "1", "2", "3", "4", "70"}) {
    EXPECT_TRUE(contains(page, std::string("\n.TP\n") + code + "\n")) << code;
  }
}

TEST(Manual, NothingOfATextIsTakenForARequest) {
  for (const Command& c : commands()) {
    const std::string page = manual_page(c);
    for (const unsigned char letter : page) EXPECT_LT(letter, 0x80) << c.name;
    const std::regex request("\n\\.(?!TH |SH |SS |TP\n|PP\n|nf\n|fi\n|br\n|BR |\\\\\")");
    EXPECT_FALSE(std::regex_search(page, request)) << c.name;
  }
}

TEST(Manual, AllPagesAreWrittenIntoAFolder) {
  const TemporaryDirectory dir("man");
  EXPECT_EQ(cli_ok({"man", "--out-dir", dir.file("man1")}), "");
  EXPECT_EQ(read_text_file(dir.path() / "man1/nibble.1"), manual_page());
  for (const Command& c : commands()) {
    EXPECT_EQ(read_text_file(dir.path() / "man1" / ("nibble-" + c.name + ".1")), manual_page(c));
  }
  cli_fails({"man", "train", "--out-dir", dir.file("man1")}, 2, "leave out train");
  cli_fails({"man", "nothing"}, 2, "no command 'nothing'");
}

TEST(Completions, KnowWhatEachValueIs) {
  const std::vector<CompletedCommand> all = completed_commands();
  const auto command = std::ranges::find(all, "generate", &CompletedCommand::name);
  ASSERT_NE(command, all.end());
  const auto option = [&](const std::string& flag) {
    for (const CompletionWord& o : command->options) {
      if (o.names[0] == flag) return o;
    }
    ADD_FAILURE() << flag;
    return CompletionWord{};
  };
  EXPECT_EQ(option("--model").value, CompletionWord::files);
  EXPECT_EQ(option("--seed").value, CompletionWord::other);
  EXPECT_EQ(option("--quiet").value, CompletionWord::none);
  EXPECT_EQ(option("--device").value, CompletionWord::choices);
  EXPECT_EQ(option("--device").words, (std::vector<std::string>{"auto", "cpu", "cuda"}));
}

TEST(Completions, EveryOptionIsInEveryShellsScript) {
  const std::string bash = cli_ok({"completions", "bash"}), zsh = cli_ok({"completions", "zsh"}),
                    fish = cli_ok({"completions", "fish"});
  for (const CompletedCommand& c : completed_commands()) {
    for (const CompletionWord& o : c.options) {
      for (const std::string& name : o.names) {
        EXPECT_TRUE(contains(bash, name)) << c.name << " " << name;
        EXPECT_TRUE(contains(zsh, name)) << c.name << " " << name;
        const bool is_long = name.starts_with("--");
        EXPECT_TRUE(contains(fish, (is_long ? "-l " : "-s ") + name.substr(is_long ? 2 : 1)))
            << c.name << " " << name;
      }
    }
  }
  cli_fails({"completions", "tcsh"}, 2, "bash, zsh, fish");
  cli_fails({"completions"}, 2, "SHELL is missing");
}

TEST(Completions, AQuoteInAWordStaysInIt) {
  EXPECT_EQ(single_quoted("the model's"), "'the model'\\''s'");
}

}  // namespace
}  // namespace nibble::test
