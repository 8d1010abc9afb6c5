// SPDX-License-Identifier: MIT
// The language, construct by construct, against what Python's jinja2 says
// (tools/make_jinja_golden.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "support/paths.h"
#include "tokenizer/jinja/template.h"

namespace nibble {
namespace {

using Json = nlohmann::ordered_json;

std::string answer(const std::string& source, const Json& variables = Json::object()) {
  jinja::RenderOptions o;
  o.now = jinja::parse_time("2026-11-16");
  try {
    return "text: " + jinja::Template::compile(source, "t")
                          .render(jinja::variables_from_json(variables), o)
                          .text;
  } catch (const jinja::TemplateError& e) {
    return "error: " + e.kind() + ": " + e.reason();
  }
}

TEST(JinjaLanguage, AsPythonHasIt) {
  std::ifstream in(std::string(kSourceDir) + "/tests/tokenizer/golden/jinja_language.jsonl");
  ASSERT_TRUE(in);
  std::string line;
  std::getline(in, line);
  const Json variables = Json::parse(line).at("variables");
  int cases = 0;
  for (; std::getline(in, line); ++cases) {
    const Json j = Json::parse(line);
    const std::string source = j.at("source");
    const std::string expected = j.contains("text") ? "text: " + j.at("text").get<std::string>()
                                                    : "error: " + j.at("error").get<std::string>();
    EXPECT_EQ(answer(source, variables), expected) << source;
  }
  EXPECT_GE(cases, 250);
}

TEST(JinjaLanguage, ErrorsSayWhere) {
  try {
    jinja::Template::compile("a\nb {{ x + }}", "t.jinja");
    FAIL();
  } catch (const jinja::TemplateError& e) {
    EXPECT_EQ(e.code(), ExitCode::file);
    EXPECT_STREQ(e.what(),
                 "t.jinja:2:10: TemplateSyntaxError: unexpected 'end of print statement'");
  }
  const auto t = jinja::Template::compile("a\n{% if true %}\n  {{ x.y.z }}{% endif %}", "t.jinja");
  try {
    t.render(jinja::variables_from_json({{"x", Json::object()}}));
    FAIL();
  } catch (const jinja::TemplateError& e) {
    EXPECT_EQ(e.code(), ExitCode::usage);
    EXPECT_STREQ(e.what(), "t.jinja:3:10: UndefinedError: 'dict object' has no attribute 'y'");
  }
}

// A template comes to an end, in the memory it may have.
TEST(JinjaLanguage, Bounds) {
  jinja::RenderOptions small;
  small.limits.steps = 100'000;
  small.limits.text_bytes = 10'000;
  const auto fails = [&](const std::string& source, const std::string& with) {
    try {
      jinja::Template::compile(source, "t").render({}, small);
      ADD_FAILURE() << source;
    } catch (const jinja::TemplateError& e) {
      EXPECT_NE(std::string(e.what()).find(with), std::string::npos) << e.what();
    }
  };
  fails("{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
        "more than 100000 steps");
  fails("{{ 'x' * 20000 }}", "more than 10000 bytes");
  fails("{{ 'x' * 9223372036854775807 }}", "more than 10000 bytes");
  fails("{% for i in range(2000) %}123456789{% endfor %}", "more than 10000 bytes");
  fails("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "maximum recursion depth");
  fails(
      "{% set ns = namespace(x=[]) %}{% for i in range(200) %}{% set ns.x = [ns.x] %}{% endfor %}",
      "nested more than 100 deep");
  fails("{{ range(100001) }}", "Range too big");
  fails("{{ " + std::string(3000, '(') + "1" + std::string(3000, ')') + " }}", "nested");
  fails("{{ " + std::string(3000, '[') + std::string(3000, ']') + " }}", "nested");
  fails("{{ " + std::string(3000, '-') + "1 }}", "nested");
  std::string ifs;
  for (int i = 0; i < 3000; ++i) ifs += "{% if true %}";
  fails(ifs, "nested");
}

std::string joined(int times, const std::string& what, const std::string& between) {
  std::string out = what;
  for (int i = 1; i < times; ++i) out += between + what;
  return out;
}

TEST(JinjaLanguage, WholeNumbersBeyond64Bits) {
  EXPECT_EQ(answer("{{ (1e300).is_integer() }} {{ (-0.5).is_integer() }}"), "text: True False");
  EXPECT_EQ(answer("{{ (1e308 * 10).is_integer() }}"), "text: False");
}

// Every comparison is steps: lists that share their parts look at 2^60 elements, a dict looks at
// its keys one after the other, long texts at each of their bytes.
TEST(JinjaLanguage, ComparisonsAreBounded) {
  const auto limited = [](const std::string& source) {
    jinja::RenderOptions o;
    o.limits.steps = 1'000'000;
    try {
      jinja::Template::compile(source, "t").render({}, o);
      ADD_FAILURE() << source;
    } catch (const jinja::TemplateError& e) {
      EXPECT_THAT(e.what(), testing::HasSubstr("more than 1000000 steps")) << source;
    }
  };
  const auto grown = [](const std::string& by) {
    return "{% set ns = namespace(a=(1,), b=(1,)) %}{% for i in range(60) %}{% set ns.a = (ns.a, "
           "ns.a) %}{% set ns.b = (ns.b, ns.b) %}{% endfor %}" +
           by;
  };
  limited(grown("{{ ns.a == ns.b }}"));
  limited(grown("{{ ns.a < ns.b }}"));
  limited(grown("{{ ns.a in [ns.b] }}"));
  limited(grown("{{ {ns.a: 1} }}"));
  limited("{{ {}.fromkeys(range(100000)) }}");
  limited(
      "{% set b = 'x' * 60000 %}{% set l = [b ~ 'y', b ~ 'z'] %}{% for i in range(100000) %}{% "
      "if l[0] == l[1] %}{% endif %}{% endfor %}");
}

// What holds what holds what ..., longer than the stack is deep.
TEST(JinjaLanguage, LongChains) {
  EXPECT_EQ(answer("{{ " + joined(300'000, "1", "+") + " }}"), "text: 300000");
  for (const char* op : {" - ", " or ", " * ", " ** ", " and "}) {
    EXPECT_THAT(answer("{{ " + joined(300'000, "0", op) + " }}"), testing::HasSubstr("recursion"));
  }
  const auto chain = [](const std::string& step, const std::string& end) {
    return answer("{% set ns = namespace(x=[1], d={}) %}{% for i in range(100000) %}" + step +
                  "{% endfor %}" + end);
  };
  EXPECT_EQ(chain("{% set ns.x = [ns.x.index] %}", ""), "text: ");
  EXPECT_EQ(chain("{% set ns.x = joiner(ns.x) %}", ""), "text: ");
  EXPECT_EQ(chain("{% set ns.x = cycler(ns.x) %}", ""), "text: ");
  EXPECT_EQ(chain("{% for y in [ns.x] %}{% set ns.x = loop %}{% endfor %}", ""), "text: ");
  EXPECT_EQ(chain("{% set ns.x = ns.x | select %}", ""), "text: ");
  EXPECT_EQ(chain("{% set ns.d = {1: ns.d.items()} %}", ""), "text: ");
  EXPECT_THAT(chain("{% set ns.x = ns.x | select %}", "{{ ns.x | list }}"),
              testing::HasSubstr("recursion"));
  EXPECT_THAT(chain("{% set ns.d = {1: ns.d.items()} %}", "{{ ns.d }}"),
              testing::HasSubstr("recursion"));
}

// Macros, scopes and namespaces may hold each other in circles; sanitizers see that none is left.
TEST(JinjaLanguage, CirclesAreTakenApart) {
  const auto t = jinja::Template::compile(
      "{% set ns = namespace() %}{% set ns.self = ns %}{% macro m() %}{{ m }}{% endmacro %}"
      "{% set ns.m = m %}{% for i in [1, 2] if i %}{% set ns.loop = loop %}{% macro q() %}{% "
      "endmacro %}"
      "{% set ns.q = q %}{% endfor %}done",
      "t");
  EXPECT_EQ(t.render({}).text, "done");
}

// Which bytes of a rendering came from outside, as a string of 'o' and '.'.
std::string origins(const std::string& source) {
  const Json variables = {{"x", "OUT"},
                          {"l", {"A", "B"}},
                          {"d", {{"k", "V"}}},
                          {"bos_token", "<s>"},
                          {"messages", {{{"role", "user"}, {"content", "C"}}, {{"role", "odd"}}}}};
  const auto r =
      jinja::Template::compile(source, "t").render(jinja::variables_from_json(variables));
  std::string out;
  for (const jinja::Run& run : r.runs) {
    out.resize(run.end, run.origin.from_outside() ? 'o' : '.');
  }
  EXPECT_EQ(out.size(), r.text.size());
  return out;
}

TEST(JinjaLanguage, TextsRememberWhereTheyCameFrom) {
  EXPECT_EQ(origins("ab{{ x }}c"), "..ooo.");
  EXPECT_EQ(origins("{{ 'a' ~ x ~ 'b' }}"), ".ooo.");
  EXPECT_EQ(origins("{{ 'a' + x + 'b' }}"), ".ooo.");
  EXPECT_EQ(origins("{{ ('a' + x + 'b')[1:] }}"), "ooo.");
  EXPECT_EQ(origins("{{ ('a' + x + 'b')[::-1] }}"), ".ooo.");
  EXPECT_EQ(origins("{{ ('a' + x)|upper }}{{ (x + 'a').lower() }}"), ".oooooo.");
  EXPECT_EQ(origins("{{ x.replace('U', '--') }}"), "o..o");
  EXPECT_EQ(origins("{{ 'aUb'|replace('U', x) }}"), ".ooo.");
  EXPECT_EQ(origins("{{ (' ' + x + ' ')|trim }}"), "ooo");
  EXPECT_EQ(origins("{{ l|join('-') }}"), "o.o");
  EXPECT_EQ(origins("{{ '-'.join(l) }}"), "o.o");
  EXPECT_EQ(origins("{{ '<%s>' % x }}{{ '<{}>'.format(x) }}"), ".ooo..ooo.");
  EXPECT_EQ(origins("{{ ('a' + x).split('O')|join('|') }}"), "..oo");
  EXPECT_EQ(origins("{{ x|tojson }}{{ l|tojson }}{{ d|tojson }}"), std::string(5 + 10 + 10, 'o'));
  EXPECT_EQ(origins("{{ {'a': x}|tojson }}"), "oo.ooooooooo");
  EXPECT_EQ(origins("{{ d }}"), std::string(10, 'o'));
  EXPECT_EQ(origins("{% set y %}a{{ x }}{% endset %}{{ y }}"), ".ooo");
  EXPECT_EQ(origins("{% macro m(v) %}<{{ v }}>{% endmacro %}{{ m(x) }}"), ".ooo.");
  EXPECT_EQ(origins("{% filter upper %}a{{ x }}{% endfilter %}"), ".ooo");
  EXPECT_EQ(origins("{% for c in x %}{{ c }},{% endfor %}"), "o.o.o.");
  EXPECT_EQ(origins("{{ x|safe + '<' }}"), "ooo....");
  EXPECT_EQ(origins("{{ x|indent(2, true) }}"), "..ooo");
  EXPECT_EQ(origins("{{ x.title() }}{{ x|title }}{{ x|capitalize }}{{ x.swapcase() }}"),
            std::string(12, 'o'));
  EXPECT_EQ(origins("{{ x.center(5, '*') }}"), ".ooo.");
  EXPECT_EQ(origins("{{ x|truncate(3, true, '', 0) }}{{ x|string }}{{ x|default('q') }}"),
            std::string(9, 'o'));
  // Token strings and known roles are the template's own words; a role nobody knows is not.
  EXPECT_EQ(origins("{{ bos_token }}{{ messages[0].role }}{{ messages[1].role }}"), ".......ooo");
  EXPECT_EQ(origins("{% generation %}a{{ x }}{% endgeneration %}"), ".ooo");
}

TEST(JinjaLanguage, GenerationBlocksAreMarked) {
  const auto r = jinja::Template::compile("a{% generation %}b{{ x }}{% endgeneration %}c", "t")
                     .render(jinja::variables_from_json({{"x", "X"}}));
  ASSERT_EQ(r.runs.size(), 4u);
  EXPECT_FALSE(r.runs[0].origin.generated);
  EXPECT_TRUE(r.runs[1].origin.generated);
  EXPECT_TRUE(r.runs[2].origin.generated);
  EXPECT_FALSE(r.runs[3].origin.generated);
}

}  // namespace
}  // namespace nibble
