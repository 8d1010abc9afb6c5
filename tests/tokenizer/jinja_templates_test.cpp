// SPDX-License-Identifier: MIT
// Templates of real models: they render as jinja2 renders them, and what a message says never
// becomes a control token, whatever the template does with it.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "core/file.h"
#include "support/shared_data.h"
#include "tokenizer/jinja/template.h"
#include "tokenizer/mini_tokenizer.h"
#include "tokenizer/tokenizer.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

jinja::RenderOptions on_the_day() {
  jinja::RenderOptions o;
  o.now = jinja::parse_time("2026-11-16");
  return o;
}

TEST(JinjaTemplates, EveryCaseRendersAsItMust) {
  NIBBLE_SHARED_FILE_OR_SKIP(cases, "templates/cases.jsonl");
  std::map<std::string, jinja::Template> compiled;
  std::ifstream in(cases);
  int texts = 0, errors = 0;
  for (std::string line; std::getline(in, line);) {
    const Json j = Json::parse(line);
    const std::string name = j.at("template");
    if (!compiled.contains(name)) {
      const std::string source = read_text_file(cases.parent_path() / name);
      compiled.emplace(name, jinja::Template::compile(source, name));
    }
    const auto variables = jinja::variables_from_json(j.at("variables"));
    const std::string where = name + " " + j.at("case").get<std::string>();
    try {
      EXPECT_EQ(compiled.at(name).render(variables, on_the_day()).text, j.value("text", ""))
          << where;
      EXPECT_FALSE(j.contains("error")) << where;
      ++texts;
    } catch (const jinja::TemplateError& e) {
      EXPECT_EQ(e.kind() + ": " + e.reason(), j.value("error", "no error")) << where;
      ++errors;
    }
  }
  EXPECT_EQ(texts, 444);
  EXPECT_EQ(errors, 32);
}

// Everything in a template that looks like a control token.
std::set<std::string> control_strings(const std::string& source) {
  static const std::regex pattern(
      "<[^<>\\s\"'{}%]{1,60}>|\\[/?[A-Z_]{2,40}\\]|\\{#|#\\}|\\{\\{|\\}\\}|\\{%|%\\}");
  std::set<std::string> out = {"<|im_start|>", "<|im_end|>", "<think>", "</think>", "<s>", "</s>"};
  for (std::sregex_iterator i(source.begin(), source.end(), pattern), end; i != end; ++i) {
    out.insert(i->str());
  }
  return out;
}

// A tokenizer in which each of these strings is a token of its own.
Tokenizer tokenizer_with(const std::set<std::string>& controls) {
  Json j = test::mini_tokenizer();
  Json& added = j.at("added_tokens");
  int id = 0;
  std::set<std::string> have;
  for (const Json& a : added) {
    id = std::max(id, a.at("id").get<int>());
    have.insert(a.at("content").get<std::string>());
  }
  for (const std::string& c : controls) {
    if (have.contains(c)) continue;
    Json one = added.at(0);
    one["id"] = ++id;
    one["content"] = c;
    added.push_back(one);
  }
  return Tokenizer::parse(j.dump(), "controls");
}

int added_tokens(const Tokenizer& t, std::span<const TextPiece> pieces) {
  int n = 0;
  for (const int32_t id : t.encode(pieces)) n += t.is_added(id) ? 1 : 0;
  return n;
}

// Conversations whose every text is `hostile`.
std::vector<Json> conversations(const std::string& hostile) {
  const Json tool = {{"type", "function"},
                     {"function",
                      {{"name", "look"},
                       {"description", hostile},
                       {"parameters",
                        {{"type", "object"},
                         {"properties", {{"q", {{"type", "string"}, {"description", hostile}}}}},
                         {"required", {"q"}}}}}}};
  const Json call = {{"id", "abcdefghi"},
                     {"type", "function"},
                     {"function", {{"name", "look"}, {"arguments", {{"q", hostile}}}}}};
  const Json system = {{"role", "system"}, {"content", hostile}};
  const Json user = {{"role", "user"}, {"content", hostile}};
  const Json reply = {{"role", "assistant"}, {"content", hostile}};
  const Json thought = {
      {"role", "assistant"}, {"content", hostile}, {"reasoning_content", hostile}};
  const Json calling = {{"role", "assistant"}, {"content", ""}, {"tool_calls", {call}}};
  const Json result = {
      {"role", "tool"}, {"content", hostile}, {"tool_call_id", "abcdefghi"}, {"name", "look"}};
  const Json none = Json::array();
  std::vector<Json> out;
  for (const Json& messages :
       {Json{user}, Json{system, user, reply, user}, Json{user, thought},
        Json{user, calling, result}, Json{user, reply, user, calling, result, reply}}) {
    for (const Json& tools : {Json(nullptr), Json{tool}}) {
      out.push_back({{"messages", messages},
                     {"tools", tools},
                     {"functions", hostile},  // as one template asks for them
                     {"datetime", hostile},
                     {"add_generation_prompt", true},
                     {"bos_token", "<s>"},
                     {"eos_token", "</s>"}});
    }
  }
  return out;
}

TEST(JinjaTemplates, WhatAMessageSaysStaysText) {
  NIBBLE_SHARED_FILE_OR_SKIP(folder, "templates");
  int templates = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".jinja") continue;
    const std::string source = read_text_file(entry.path());
    const std::string name = entry.path().filename().string();
    const auto t = jinja::Template::compile(source, name);
    const std::set<std::string> controls = control_strings(source);
    const Tokenizer tokenizer = tokenizer_with(controls);
    std::string hostile;  // each between two marks that no template writes
    for (const std::string& c : controls) hostile += "\x01" + c + "\x02";
    int rendered = 0, marks = 0;
    for (const Json& variables : conversations(hostile)) {
      jinja::Rendering r;
      try {
        r = t.render(jinja::variables_from_json(variables), on_the_day());
      } catch (const jinja::TemplateError&) {
        continue;  // a template that refuses this conversation
      }
      ++rendered;
      std::vector<TextPiece> pieces;
      int written_controls = 0;
      size_t at = 0;
      for (const jinja::Run& run : r.runs) {
        const std::string_view text = std::string_view(r.text).substr(at, run.end - at);
        at = run.end;
        const bool outside = run.origin.from_outside();
        pieces.push_back({text, outside ? SpecialTokens::plain : SpecialTokens::parse});
        if (outside) {
          for (const char c : text) marks += c == '\x01' ? 1 : 0;
          continue;
        }
        EXPECT_EQ(text.find_first_of("\x01\x02"), text.npos) << name;
        const TextPiece alone{text, SpecialTokens::parse};
        written_controls += added_tokens(tokenizer, {&alone, 1});
      }
      EXPECT_EQ(at, r.text.size()) << name;
      // Control tokens are those the template wrote, and no other.
      EXPECT_EQ(added_tokens(tokenizer, pieces), written_controls) << name;
    }
    EXPECT_GT(rendered, 0) << name << " rendered nothing";
    EXPECT_GT(marks, 0) << name << " showed none of the messages";
    ++templates;
  }
  EXPECT_EQ(templates, 68);
}

}  // namespace
}  // namespace nibble
