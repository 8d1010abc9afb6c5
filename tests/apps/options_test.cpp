// SPDX-License-Identifier: MIT
// The option grammar: every form, every kind of mistake.
#include "apps/options/options.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "core/file.h"
#include "core/text/nearest_name.h"
#include "support/toy_dir.h"

namespace nibble {
namespace {

enum class Colour { red, green };

struct Sample {
  bool flag = false;
  int32_t count = 3;
  uint64_t seed = 7;
  double rate = 0.5;
  std::string text = "none";
  std::filesystem::path file, input;
  std::optional<int64_t> limit;
  std::vector<int32_t> ids;
  std::vector<std::string> many;
  Colour colour = Colour::red;

  void visit_fields(Fields& f) {
    f.add(input, {.flag = "IN", .help = "input", .required = true});
    f.add(flag, {.flag = "--flag", .help = "a switch", .aliases = {"-f"}});
    f.add(count, {.flag = "--count", .help = "a count", .least = 1, .most = 10});
    f.add(seed, {.flag = "--seed", .help = "a seed"});
    f.add(rate, {.flag = "--rate", .help = "a rate", .most = 1, .above = 0});
    f.add(text, {.flag = "--text", .help = "a text", .aliases = {"--words"}});
    f.add(file, {.flag = "--file", .help = "a file"});
    f.add(limit, {.flag = "--limit", .help = "a limit", .least = 0});
    f.add(ids, {.flag = "--ids", .help = "ids"});
    f.add(many, {.flag = "--many", .help = "many"});
    f.add_choice<Colour>(
        colour, {.flag = "--colour", .help = "a colour"},
        {{"red", Colour::red}, {"green", Colour::green}, {"verde", Colour::green}});
  }
};

Sample parse(const std::vector<std::string>& args) {
  Sample s;
  Fields f;
  s.visit_fields(f);
  parse_arguments(f, args, [](const std::string& flag) { return "unknown " + flag; });
  return s;
}

std::string error_of(const std::vector<std::string>& args) {
  try {
    parse(args);
  } catch (const UsageError& e) {
    return e.what();
  }
  return "no error";
}

TEST(Options, BothForms) {
  EXPECT_EQ(parse({"--count", "5"}).count, 5);
  EXPECT_EQ(parse({"--count=5"}).count, 5);
  EXPECT_EQ(parse({"--text="}).text, "");
  EXPECT_EQ(parse({"--text=a=b"}).text, "a=b");
  EXPECT_EQ(parse({"--words", "x"}).text, "x");
  EXPECT_EQ(parse({"--rate", "1e-3"}).rate, 1e-3);
  EXPECT_EQ(parse({"--text", "-5"}).text, "-5");
  EXPECT_EQ(parse({"--text=--count"}).text, "--count");
}

TEST(Options, Booleans) {
  EXPECT_FALSE(parse({}).flag);
  EXPECT_TRUE(parse({"--flag"}).flag);
  EXPECT_TRUE(parse({"-f"}).flag);
  for (const char* yes : {"true", "1", "yes"}) {
    EXPECT_TRUE(parse({"--flag", yes}).flag);
    EXPECT_TRUE(parse({std::string("--flag=") + yes}).flag);
  }
  for (const char* no : {"false", "0", "no"}) {
    EXPECT_FALSE(parse({"--flag", no}).flag);
    EXPECT_FALSE(parse({std::string("--flag=") + no}).flag);
  }
  // Any other word after a switch is not its value.
  const Sample s = parse({"--flag", "file.dat"});
  EXPECT_TRUE(s.flag);
  EXPECT_EQ(s.input, "file.dat");
  EXPECT_EQ(error_of({"--flag=maybe"}),
            "--flag: 'maybe' is neither true nor false: use true or false");
}

TEST(Options, SeedsAre64BitsAndChecked) {
  EXPECT_EQ(parse({"--seed", "202602270039"}).seed, 202602270039u);
  EXPECT_EQ(parse({"--seed", "18446744073709551615"}).seed, UINT64_MAX);
  EXPECT_EQ(error_of({"--seed", "18446744073709551616"}),
            "--seed: '18446744073709551616' does not fit into 64 bits");
  EXPECT_EQ(error_of({"--seed=-1"}), "--seed: '-1' is negative");
  EXPECT_EQ(error_of({"--count", "99999999999"}),
            "--count: '99999999999' is out of range: expected 1..10");
}

TEST(Options, BadValuesAreNamed) {
  EXPECT_EQ(error_of({"--count", "5x"}), "--count: '5x' is not a whole number: expected 1..10");
  EXPECT_EQ(error_of({"--count", ""}), "--count: '' is not a whole number: expected 1..10");
  EXPECT_EQ(error_of({"--count", "0"}), "--count: '0' is out of range: expected 1..10");
  EXPECT_EQ(error_of({"--count", "11"}), "--count: '11' is out of range: expected 1..10");
  EXPECT_EQ(error_of({"--rate", "0"}), "--rate: '0' is out of range: expected > 0 and <= 1");
  EXPECT_EQ(error_of({"--rate", "nan"}),
            "--rate: 'nan' is not a number this option can hold: expected > 0 and <= 1");
  EXPECT_EQ(error_of({"--rate", "1e999"}),
            "--rate: '1e999' is not a number this option can hold: expected > 0 and <= 1");
  EXPECT_EQ(error_of({"--limit", "-1"}), "--limit: '-1' is out of range: expected >= 0");
  EXPECT_EQ(error_of({"--colour", "blue"}),
            "--colour: 'blue' is not one of the choices: use red, green");
  EXPECT_EQ(error_of({"--ids", "1,x"}), "--ids: '1,x' holds 'x', which is not a whole number");
  EXPECT_EQ(error_of({"--file", ""}), "--file: '' is empty, expected a path");
  EXPECT_EQ(error_of({"--count"}), "--count needs a value: expected 1..10");
  EXPECT_EQ(error_of({"--count", "--flag"}),
            "--count needs a value, found '--flag'; a value that starts with -- is written "
            "--count=--flag");
}

TEST(Options, NothingTwice) {
  EXPECT_EQ(error_of({"--count", "1", "--count=2"}), "--count is given twice");
  EXPECT_EQ(error_of({"--text", "a", "--words", "b"}),
            "--text and --words are the same option, given twice");
  EXPECT_EQ(parse({"--many", "a", "--many=b"}).many, (std::vector<std::string>{"a", "b"}));
}

TEST(Options, UnknownFlagsAndStrayWords) {
  EXPECT_EQ(error_of({"--nope=1"}), "unknown --nope");
  EXPECT_EQ(error_of({"-x"}), "unknown -x");
  EXPECT_EQ(error_of({"a", "b"}), "unexpected argument 'b'");
  EXPECT_EQ(parse({"--", "--flag"}).input, "--flag");
  EXPECT_EQ(parse({"-"}).input, "-");
}

TEST(Options, ListsChoicesAndOptionals) {
  EXPECT_EQ(parse({"--ids", "3, 1,2"}).ids, (std::vector<int32_t>{3, 1, 2}));
  EXPECT_EQ(parse({"--colour", "verde"}).colour, Colour::green);
  EXPECT_FALSE(parse({}).limit.has_value());
  EXPECT_EQ(parse({"--limit", "9"}).limit, 9);
}

TEST(Options, Sizes) {
  ByteSize size;
  const std::pair<const char*, uint64_t> good[] = {{"5GB", 5'000'000'000},
                                                   {"500 MB", 500'000'000},
                                                   {"2GiB", 2'147'483'648},
                                                   {"1.5kb", 1500},
                                                   {"10M", 10'000'000},
                                                   {"1TiB", uint64_t(1) << 40},
                                                   {"123", 123},
                                                   {"7b", 7}};
  for (const auto& [text, bytes] : good) {
    EXPECT_EQ(parse_value(text, size), "") << text;
    EXPECT_EQ(size.bytes, bytes) << text;
    // And back, as a run-config has it.
    const std::string toml = toml_value(size);
    ByteSize again;
    EXPECT_EQ(parse_value(toml.substr(1, toml.size() - 2), again), "") << toml;
    EXPECT_EQ(again.bytes, bytes) << toml;
  }
  EXPECT_EQ(toml_value(ByteSize{5'000'000'000}), "\"5GB\"");
  EXPECT_EQ(toml_value(ByteSize{1 << 20}), "\"1MiB\"");
  for (const char* bad : {"", "GB", "5XB", "-5GB", "5 G B", "1.2.3GB", "5GBx"}) {
    EXPECT_TRUE(parse_value(bad, size).starts_with("is not a size like")) << bad;
  }
  for (const char* bad : {"0", "0.1", "99999999TB"}) {
    EXPECT_EQ(parse_value(bad, size), "is not a size that files can have") << bad;
  }
}

TEST(Options, RequiredOnes) {
  Sample s;
  Fields f;
  s.visit_fields(f);
  EXPECT_THROW(check_required(f, "sample"), UsageError);
  parse_arguments(f, std::vector<std::string>{"x"}, [](const std::string&) { return ""; });
  EXPECT_NO_THROW(check_required(f, "sample"));
}

TEST(Options, NearestName) {
  EXPECT_EQ(nearest_name("--sed", {"--seed", "--count"}), "--seed");
  EXPECT_EQ(nearest_name("--max-token", {"--max-tokens", "--min-p"}), "--max-tokens");
  EXPECT_EQ(nearest_name("--completely-else", {"--seed"}), "");
}

class RunConfig : public testing::Test {
 protected:
  Sample apply(const std::string& toml, const std::vector<std::string>& args = {}) {
    const std::filesystem::path file = dir_.file("run.toml");
    replace_file(file, toml);
    Sample s;
    Fields f;
    s.visit_fields(f);
    const auto explain = [](const std::string& flag) { return "unknown " + flag; };
    parse_arguments(f, args, explain);
    apply_run_config(f, file, "sample", explain);
    return s;
  }
  std::string error(const std::string& toml) {
    try {
      apply(toml);
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  }
  test::TemporaryDirectory dir_{"run-config"};
};

TEST_F(RunConfig, SameKeysAndTheCommandLineWins) {
  const Sample s = apply(
      "command = \"sample\"\nin = \"w.dat\"\ncount = 4\nrate = 0.25\nflag = true\nids = [1, 2]\n"
      "many = [\"a\", \"b\"]\ncolour = \"green\"\nseed = \"18446744073709551615\"\n",
      {"--count", "9"});
  EXPECT_EQ(s.input, "w.dat");
  EXPECT_EQ(s.count, 9);
  EXPECT_EQ(s.rate, 0.25);
  EXPECT_TRUE(s.flag);
  EXPECT_EQ(s.ids, (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(s.many.size(), 2u);
  EXPECT_EQ(s.colour, Colour::green);
  EXPECT_EQ(s.seed, UINT64_MAX);
}

TEST_F(RunConfig, MistakesAreNamed) {
  const auto says = [&](const std::string& toml, const std::string& part) {
    const std::string e = error(toml);
    EXPECT_NE(e.find(part), std::string::npos) << e;
  };
  says("cuont = 4", "unknown --cuont");
  says("count = 40", "count: '40' is out of range");
  says("count = 4.5", "not a whole number");
  says("count = [1]", "expected one value, found an array");
  says("[count]\nx = 1", "expected a string");
  says("command = \"other\"", "the command given is 'sample'");
  says("text = \"a\"\nwords = \"b\"", "given twice");
  says("count = ", "not valid TOML");
  says("stages = []", "each stage of a chain is a table [[stage]]");
  says("stage = []", "[[stage]], one or more");
  says("[[stage]]\nname = \"a/b\"", "stage 1: name: 'a/b' must be a plain file name");
  says("[[stage]]\nx = 1", "for train and pretrain");
}

TEST_F(RunConfig, ThePrintedConfigurationReadsBack) {
  Sample s = parse({"in.dat", "--text", "a \"quoted\"\nline\x01", "--rate=0.1", "--ids", "5,6",
                    "--many", "x y", "--seed", "18446744073709551615"});
  Fields f;
  s.visit_fields(f);
  const std::string printed = f.to_toml();
  const Sample back = apply(printed);
  EXPECT_EQ(back.text, s.text);
  EXPECT_EQ(back.rate, s.rate);
  EXPECT_EQ(back.ids, s.ids);
  EXPECT_EQ(back.many, s.many);
  EXPECT_EQ(back.seed, s.seed);
  Sample again = back;
  Fields g;
  again.visit_fields(g);
  EXPECT_EQ(g.to_toml(), printed);
}

// A command of its own inside the command line: what follows its name is not ours.
struct Wrapper {
  std::vector<std::string> program;
  bool flag = false;
  int32_t count = 0;
  void visit_fields(Fields& f) {
    f.add(program, {.flag = "PROGRAM", .help = "what to run", .required = true, .rest = true});
    f.add(flag, {.flag = "--flag", .help = "a switch"});
    f.add(count, {.flag = "--count", .help = "a count"});
  }
};

TEST(Options, TheRestBelongsToTheProgram) {
  using Words = std::vector<std::string>;
  const auto parse_wrapper = [](const Words& args) {
    Wrapper w;
    Fields f;
    w.visit_fields(f);
    parse_arguments(f, args, [](const std::string& flag) { return "unknown " + flag; });
    EXPECT_EQ(f.all()[0].given(), !w.program.empty());
    return w;
  };
  const Wrapper plain = parse_wrapper({"--count", "2", "prog", "--count", "3", "--", "-x", "--no"});
  EXPECT_EQ(plain.count, 2);
  EXPECT_EQ(plain.program, (Words{"prog", "--count", "3", "--", "-x", "--no"}));
  EXPECT_EQ(parse_wrapper({"--", "--odd", "--flag"}).program, (Words{"--odd", "--flag"}));
  EXPECT_TRUE(parse_wrapper({"--flag", "prog"}).flag);
  EXPECT_THROW(parse_wrapper({"--nope", "prog"}), UsageError);

  Wrapper w;
  Fields f;
  w.visit_fields(f);
  EXPECT_EQ(count_before_rest(f, Words{"--count", "2", "prog", "--help"}), 2u);
  EXPECT_EQ(count_before_rest(f, Words{"--count=2", "prog", "--help"}), 1u);
  EXPECT_EQ(count_before_rest(f, Words{"--flag", "false", "--", "--help"}), 2u);
  EXPECT_EQ(count_before_rest(f, Words{"--flag", "--help"}), 2u);
  EXPECT_EQ(usage_arguments(f), " [options] [--] PROGRAM [ARGUMENTS...]");
  Sample sample;
  Fields g;
  sample.visit_fields(g);
  EXPECT_EQ(count_before_rest(g, Words{"in", "--help", "--", "x"}), 2u);
  EXPECT_EQ(usage_arguments(g), " IN [options]");
}

}  // namespace
}  // namespace nibble
