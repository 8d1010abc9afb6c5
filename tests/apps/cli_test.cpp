// SPDX-License-Identifier: MIT
// Dispatch, help, exit codes, and the answers to the predecessor's flags.
#include "apps/cli.h"

#include <algorithm>
#include <cstdlib>
#include <regex>
#include <sstream>

#include "apps/cli_run.h"
#include "apps/command.h"
#include "apps/options/legacy_flags.h"
#include "apps/options/legacy_programs.h"
#include "core/log.h"
#include "support/paths.h"

namespace nibble::test {
namespace {

TEST(Cli, VersionAndHelp) {
  EXPECT_TRUE(cli_ok({"--version"}).starts_with("nibble "));
  const std::string help = cli_ok({"--help"});
  for (const Command& c : commands()) {
    EXPECT_TRUE(contains(help, "  " + c.name + " ")) << c.name;
    EXPECT_EQ(cli_ok({c.name, "--help"}), command_help(c.name));
    EXPECT_EQ(cli_ok({c.name, "-h", "--no-such-flag"}), command_help(c.name));
    EXPECT_EQ(cli_ok({"help", c.name}), command_help(c.name));
  }
  EXPECT_EQ(cli_ok({"help"}), help);
  cli_fails({"help", "nothing"}, 2, "nothing");
  cli_fails({"help", "convert", "more"}, 2, "more");
  for (const char* yes : {"True", "TRUE", "Yes"}) {
    EXPECT_TRUE(contains(cli_ok({"convert", "--force", yes, "--print-config"}), "force = true"));
  }
  EXPECT_TRUE(contains(cli_ok({"convert", "--force=False", "--print-config"}), "force = false"));
  const CliResult nothing = cli({});
  EXPECT_EQ(nothing.code, 2);
  EXPECT_EQ(nothing.out, help);
}

// NIBBLE_UPDATE_GOLDEN=1 rewrites the files: a changed option is a visible difference.
TEST(Cli, HelpIsTheGoldenFile) {
  for (const Command& c : commands()) {
    const auto file =
        std::filesystem::path(kSourceDir) / "tests/apps/golden" / ("help_" + c.name + ".txt");
    const std::string help = command_help(c.name);
    if (std::getenv("NIBBLE_UPDATE_GOLDEN")) replace_file(file, help);
    ASSERT_TRUE(std::filesystem::exists(file)) << file << ": set NIBBLE_UPDATE_GOLDEN=1 to write";
    EXPECT_EQ(read_text_file(file), help) << c.name << ": set NIBBLE_UPDATE_GOLDEN=1 to update";
  }
}

TEST(Cli, TyposOfCommands) {
  cli_fails({"convrt"}, 2, "did you mean 'convert'?");
  cli_fails({"xyzzy"}, 2, "unknown command 'xyzzy'");
  cli_fails({"--nope", "convert"}, 2, "--nope");
}

TEST(Cli, UnknownFlagsSuggestTheNearest) {
  cli_fails({"init", "--sede", "1"}, 2, "did you mean --seed?");
  cli_fails({"convert", "--decode", "1"}, 2, "not an option of 'convert'; it belongs to tokenize");
  cli_fails({"init"}, 2, "--config is missing");
}

TEST(Cli, LogLevel) {
  const auto run = [](const std::vector<std::string>& args) {
    std::ostringstream out, err;
    return run_cli(args, out, err);
  };
  EXPECT_EQ(run({"--quiet", "init", "--print-config"}), 0);
  EXPECT_EQ(log_level(), LogLevel::quiet);
  EXPECT_EQ(run({"init", "--verbose", "--print-config"}), 0);
  EXPECT_EQ(log_level(), LogLevel::debug);
  EXPECT_EQ(run({"init", "--print-config"}), 0);
  EXPECT_EQ(log_level(), LogLevel::info);
  EXPECT_EQ(run({"--quiet", "init", "--verbose"}), 2);
  EXPECT_EQ(run({"--quiet", "init", "--quiet"}), 2);
}

TEST(Cli, RunConfigAndPrintConfig) {
  const TemporaryDirectory dir("cli");
  replace_file(dir.file("run.toml"), "seed = 5\nthreads = 3\n");
  const std::string printed =
      cli_ok({"init", "--run-config", dir.file("run.toml"), "--print-config", "--seed", "6"});
  EXPECT_TRUE(contains(printed, "command = \"init\"\n"));
  EXPECT_TRUE(contains(printed, "\nseed = 6\n"));
  EXPECT_TRUE(contains(printed, "\nthreads = 3\n"));
  replace_file(dir.file("bad.toml"), "sed = 5\n");
  cli_fails({"init", "--run-config", dir.file("bad.toml")}, 2, "did you mean --seed?");
  cli_fails({"init", "--run-config", dir.file("none.toml")}, 3, "none.toml");
}

// Every flag of the predecessor is either an option of a command or answered with what to do.
TEST(Cli, EveryLegacyFlagIsAnswered) {
  const std::string guide = read_text_file(std::filesystem::path(kSourceDir) / "docs/migration.md");
  for (const LegacyFlag& legacy : legacy_flags()) {
    const std::string flag(legacy.flag);
    EXPECT_TRUE(contains(guide, "`" + flag + "`")) << flag << " is not in docs/migration.md";
    for (const Command& c : commands()) {
      if (c.make()->fields().find(flag)) continue;
      if (find_unneeded(flag, c.name)) continue;  // it is said, and the line goes on
      const CliResult r = cli({c.name, flag, "1"});
      EXPECT_EQ(r.code, 2) << flag;
      EXPECT_TRUE(contains(r.err, flag) && contains(r.err, std::string(legacy.instead))) << r.err;
    }
  }
}

// What an answer tells people to use must exist.
TEST(Cli, LegacyAnswersNameRealOptions) {
  const std::regex option("--[A-Za-z][A-Za-z-]*");
  for (const LegacyFlag& legacy : legacy_flags()) {
    const std::string text(legacy.instead);
    if (contains(text, "later version")) continue;
    for (std::sregex_iterator it(text.begin(), text.end(), option), end; it != end; ++it) {
      const bool known = std::ranges::any_of(commands(), [&](const Command& c) {
        return c.make()->fields().find(it->str()) != nullptr || it->str() == "--verbose";
      });
      EXPECT_TRUE(known) << legacy.flag << ": " << text;
    }
  }
}

TEST(Cli, OffloadIsAnsweredWithItsReason) {
  cli_fails({"convert", "--offload-mv-to-cpu", "true"}, 2, "--offload-mv-to-cpu: not in nibble; ");
}

}  // namespace
}  // namespace nibble::test
