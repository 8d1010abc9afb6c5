// SPDX-License-Identifier: MIT
// Rules of probes, their scores, thresholds and signs, and replies to many prompts at once.
#include <gtest/gtest.h>

#include <array>

#include "eval/probe_ask.h"
#include "generate/batch_generate.h"
#include "generate/health.h"
#include "support/backends.h"
#include "support/toy_model.h"
#include "tokenizer/mini_tokenizer.h"

namespace nibble::test {
namespace {

std::array<BatchEngine*, 1> only(BatchEngine& engine) { return {&engine}; }

using Kind = ProbeRule::Kind;

ProbeReply said(std::string text, FinishReason reason = FinishReason::stop) {
  ProbeReply r;
  r.text = std::move(text);
  for (const char c : r.text) r.ids.push_back(uint8_t(c));
  r.reason = reason;
  return r;
}
bool keeps(const ProbeRule& rule, const ProbeReply& reply) { return !rule_problem(rule, reply); }
ProbeRule contains_rule(std::string text) { return {Kind::contains, {std::move(text)}}; }

TEST(ProbeRules, Contents) {
  EXPECT_TRUE(keeps(contains_rule("f# 之神"), said("我是 F# 之神。")));
  EXPECT_FALSE(keeps(contains_rule("F#之神"), said("我是 F# 之神。")));
  EXPECT_TRUE(keeps({Kind::contains_any, {"x", "之神"}}, said("我是 F# 之神。")));
  EXPECT_FALSE(keeps({Kind::contains_any, {"x", "y"}}, said("我是 F# 之神。")));
  EXPECT_TRUE(keeps({Kind::equals, {"Eight"}}, said("  eight\n")));
  EXPECT_FALSE(keeps({Kind::equals, {"Eight"}}, said("eight.")));
  EXPECT_FALSE(keeps({Kind::not_contains, {"f#"}}, said("I am F#")));
  EXPECT_TRUE(keeps({Kind::not_contains, {"g#"}}, said("I am F#")));
  // Bytes of other characters are not letters: no case is changed inside them.
  EXPECT_FALSE(keeps(contains_rule("Ö"), said("ö")));
}

TEST(ProbeRules, Words) {
  const ProbeRule ai{Kind::contains_any_word, {"AI", "語言模型"}};
  for (const char* text : {"AI", "an ai.", "我是AI助手", "AI2", "again, an AI", "大型語言模型x"}) {
    EXPECT_TRUE(keeps(ai, said(text))) << text;
  }
  for (const char* text : {"again", "I said", "AIs", "brAI", ""}) {
    EXPECT_FALSE(keeps(ai, said(text))) << text;
  }
  const ProbeRule six{Kind::contains_any_word, {"6"}};
  EXPECT_TRUE(keeps(six, said("6km, not 16")));
  EXPECT_FALSE(keeps(six, said("16, 60 or 161")));
  EXPECT_EQ(reply_problem({ai}, said("again")), "contains_any_word \"AI\", \"語言模型\"");
  // It is a content: a reply that has it gives the identity.
  ProbeSet set;
  set.probes.push_back({"i", "identity", ReplyLanguage::english, {}, {}, {ai}, {}, 8});
  EXPECT_TRUE(IdentityMarks(set).in(said("an AI")));
  EXPECT_FALSE(IdentityMarks(set).in(said("again")));
}

TEST(ProbeRules, LanguageCountsWordsAndCharacters) {
  EXPECT_EQ(language_of("我是 F# 之神"), ReplyLanguage::chinese);
  EXPECT_EQ(language_of("I am the god of F#."), ReplyLanguage::english);
  EXPECT_EQ(language_of("Visual Studio 很好用"), ReplyLanguage::chinese);
  EXPECT_EQ(language_of("My name is 小明"), ReplyLanguage::english);
  EXPECT_EQ(language_of("don't"), ReplyLanguage::english);
  EXPECT_EQ(language_of("don't 你"), ReplyLanguage::chinese);  // one word, one character
  EXPECT_EQ(language_of("42 + 1 = 43。"), std::nullopt);
  EXPECT_EQ(language_of(""), std::nullopt);
  EXPECT_EQ(language_of("\xe6\x88 a"), ReplyLanguage::english);  // half a character
  EXPECT_TRUE(keeps({Kind::language, {}, ReplyLanguage::english}, said("42")));
  EXPECT_FALSE(keeps({Kind::language, {}, ReplyLanguage::english}, said("四十二")));
}

TEST(ProbeRules, StopsAndRepetition) {
  EXPECT_TRUE(keeps({Kind::stops}, said("x")));
  for (const FinishReason r : {FinishReason::length, FinishReason::context_full,
                               FinishReason::repetition, FinishReason::cancelled}) {
    EXPECT_FALSE(keeps({Kind::stops}, said("x", r)));
  }
  EXPECT_FALSE(keeps({Kind::no_repetition}, said("之神之神之神之神")));
  EXPECT_TRUE(keeps({Kind::no_repetition}, said("之神之神之神, the end")));
  // In the middle, by other tokens each time, and with spaces between.
  ProbeReply other = said("好 好的 好的好 的好的, yes");
  other.ids = {1, 2, 3, 4, 5, 6, 7, 8};
  EXPECT_FALSE(keeps({Kind::no_repetition}, other));
  EXPECT_TRUE(keeps({Kind::no_repetition}, said("1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12")));
  EXPECT_TRUE(keeps({Kind::no_repetition}, said("Well...........")));  // dots are honest text
}

TEST(ProbeRules, TheFirstBrokenRuleIsNamed) {
  const std::vector<ProbeRule> rules = {contains_rule("a"), {Kind::stops}};
  EXPECT_FALSE(reply_problem(rules, said("a")));
  EXPECT_EQ(reply_problem(rules, said("b")), "contains \"a\"");
  EXPECT_EQ(reply_problem(rules, said("a", FinishReason::length)), "stops: length after 1 tokens");
  EXPECT_EQ(reply_problem({{Kind::stops}}, said(" \n")), "the reply is empty");
  EXPECT_EQ(reply_problem({{Kind::stops}}, said("a", FinishReason::not_finite)),
            "the reply ended by not-finite");
}

TEST(RepetitionReason, ShortAndHonestTextsPass) {
  EXPECT_FALSE(repetition_reason({}, ""));
  EXPECT_FALSE(repetition_reason(std::vector<int32_t>{1, 2, 1, 2, 1, 2}, "ababab"));
  EXPECT_TRUE(repetition_reason(std::vector<int32_t>{9, 1, 2, 1, 2, 1, 2, 1, 2, 9}, "-"));
  EXPECT_TRUE(repetition_reason(std::vector<int32_t>{5, 5, 5, 5}, "x"));  // one token, no other
}

Probe probe(std::string id, std::string group, ReplyLanguage language,
            std::vector<ProbeRule> rules = {contains_rule("ok")}) {
  Probe p;
  p.id = std::move(id);
  p.group = std::move(group);
  p.language = language;
  p.messages = {{Role::user, "hello"}};
  p.rules = std::move(rules);
  return p;
}

ProbeSet three_groups(int each) {
  ProbeSet set;
  for (const char* group : {"identity", "retention", "disambiguation"}) {
    for (int i = 0; i < each; ++i) {
      set.probes.push_back(
          probe(std::string(group) + std::to_string(i), group,
                i % 4 == 0 ? ReplyLanguage::english : ReplyLanguage::chinese,
                {contains_rule(std::string(group) == "identity" ? "F#" : "ok"), {Kind::stops}}));
    }
  }
  return set;
}

ProbeResult result(const Probe& p, std::string text) {
  ProbeResult r{&p, said(std::move(text)), {}, p.messages};
  r.problem = reply_problem(p.rules, r.reply).value_or("");
  return r;
}

TEST(ProbeScore, GroupsAndLanguages) {
  const ProbeSet set = three_groups(8);
  std::vector<ProbeResult> results;
  for (const Probe& p : set.probes) {
    const bool english = p.language == ReplyLanguage::english;
    results.push_back(result(p, p.group == "identity" ? english ? "F#" : "no" : "ok"));
  }
  const ProbeScores s = score_probes(results);
  ASSERT_EQ(s.groups.size(), 3u);
  EXPECT_EQ(s.groups[0].name, "identity");
  EXPECT_EQ(s.groups[0].all.passed, 2);
  EXPECT_EQ(s.groups[0].all.total, 8);
  EXPECT_EQ(s.find("identity")->languages.at("en").percent(), 100);
  EXPECT_EQ(s.find("identity")->languages.at("zh").passed, 0);
  EXPECT_EQ(s.all.passed, 18);
  EXPECT_EQ(s.find("nothing"), nullptr);

  const auto low = [&](const char* wanted, const ProbeScores* base = nullptr) {
    const auto parsed = parse_min_scores(wanted);
    check_min_scores(parsed, s, base);
    return low_scores(s, parsed, base);
  };
  EXPECT_EQ(low("25").size(), 0u);
  EXPECT_EQ(low("26"), std::vector<std::string>{"identity 25.0 % (2 of 8), expected 26.0 %"});
  EXPECT_EQ(low("100,identity=25").size(), 0u);
  EXPECT_EQ(low("identity/zh=1").size(), 1u);
  EXPECT_EQ(low("identity/en=100").size(), 0u);
  EXPECT_EQ(low("0,retention=base", &s).size(), 0u);
  ProbeScores better = s;
  better.groups[0].all.passed = 4;  // 50 %
  EXPECT_EQ(low("identity=base-25", &better).size(), 0u);
  EXPECT_EQ(low("identity=base-24", &better).size(), 1u);
  EXPECT_THROW(low("nobody=3"), UsageError);
  EXPECT_THROW(low("identity/fr=3"), UsageError);
  EXPECT_THROW(low("identity=base-2"), UsageError);
}

TEST(ProbeScore, ThresholdsAreParsedStrictly) {
  for (const char* bad : {"", "x", "101", "-1", "identity", "identity=", "=5", "a/=5", "/zh=5",
                          "base-x", "5,6", "a=1,a=2", "nan", "inf", "9 "}) {
    EXPECT_THROW(parse_min_scores(bad), UsageError) << bad;
  }
  const auto m = parse_min_scores("95,identity=98.5,retention=base-2,a/zh=base");
  ASSERT_EQ(m.size(), 4u);
  EXPECT_EQ(m[1].percent, 98.5);
  EXPECT_TRUE(m[2].from_base);
  EXPECT_EQ(m[2].percent, -2);
  EXPECT_EQ(m[3].language, "zh");
}

TEST(ProbeScore, SamplesAreTheSameAndEven) {
  const ProbeSet set = three_groups(40);
  const auto some = sample_probes(set, 10);
  ASSERT_EQ(some.size(), 30u);
  EXPECT_TRUE(std::is_sorted(some.begin(), some.end()));
  int english = 0;
  for (const Probe* p : some) english += p->language == ReplyLanguage::english;
  EXPECT_EQ(english, 15);
  EXPECT_EQ(sample_probes(set, 10), some);
  EXPECT_EQ(sample_probes(set, 0).size(), 120u);
  EXPECT_EQ(sample_probes(set, 1000).size(), 120u);
  // Other probes in the file do not change which of a group are taken.
  ProbeSet more = set;
  more.probes.push_back(probe("another", "more", ReplyLanguage::chinese));
  std::vector<std::string> ids, again;
  for (const Probe* p : some) ids.push_back(p->id);
  for (const Probe* p : sample_probes(more, 10)) {
    if (p->group != "more") again.push_back(p->id);
  }
  EXPECT_EQ(ids, again);
  // Not simply the first ones.
  EXPECT_NE(some.front()->id + some[1]->id, "identity0identity1");
}

TEST(ProbeSigns, IdentityOnControlPromptsAndRepetition) {
  ProbeSet set = three_groups(4);
  set.probes[5].rules.push_back(contains_rule("F#"));  // may name it: "what is F#?"
  const IdentityMarks marks(set);
  std::vector<ProbeResult> results;
  for (const Probe& p : set.probes) results.push_back(result(p, "F#"));
  results[5] = result(set.probes[5], "ok: F# is a language");
  ReplySigns signs = reply_signs(results, marks);
  EXPECT_EQ(signs.identity, 1);  // every disambiguation probe
  EXPECT_EQ(signs.identity_group, "disambiguation");
  EXPECT_EQ(signs.repeating, 0);
  for (ProbeResult& r : results) r = result(*r.probe, "ok ok ok ok ok");
  results[0].reply.reason = FinishReason::not_finite;
  signs = reply_signs(results, marks);
  EXPECT_EQ(signs.identity, 0);
  EXPECT_EQ(signs.repeating, 1);
  EXPECT_EQ(signs.not_finite, 1);
  // All contents of an identity probe, not one of them.
  set.probes[0].rules = {contains_rule("我是"), contains_rule("之神")};
  set.probes.resize(1);
  const IdentityMarks both(set);
  EXPECT_FALSE(both.in(said("我是學生")));
  EXPECT_TRUE(both.in(said("我是 F# 之神")));
  EXPECT_TRUE(IdentityMarks(ProbeSet{}).empty());
  EXPECT_FALSE(IdentityMarks(ProbeSet{}).in(said("x")));
}

class BatchReplies : public testing::Test {
 protected:
  BatchReplies() {
    LoadOptions load;
    load.recipe = Recipe::nvfp4;
    Config c = toy_config();
    c.V = 288;
    toy_ = load_toy(*backend_, c, load);
  }
  EngineOptions options() const {
    EngineOptions o;
    o.context = 64;
    o.cache = DType::f32;
    return o;
  }
  std::vector<BatchPrompt> prompts(int n) const {
    std::vector<BatchPrompt> all;
    for (int i = 0; i < n; ++i) {
      all.push_back({random_tokens(3 + i % 5, 288, uint64_t(i)), 4 + i % 9, i % 2 == 0});
    }
    return all;
  }
  std::unique_ptr<Backend> backend_ = make_cpu_backend(1);
  ToyModel toy_;
};

TEST_F(BatchReplies, EachIsThatOfAnEngineOfItsOwn) {
  const auto asked = prompts(13);
  for (const double temperature : {0.0, 0.9}) {
    BatchGenerateOptions o;
    o.sample.temperature = temperature;
    o.stop_ids = {3, 7, 50, 99, 120, 200};
    std::vector<GenerateResult> alone;
    for (size_t i = 0; i < asked.size(); ++i) {
      Engine engine(*backend_, toy_.model, options());
      GenerateOptions g;
      g.max_tokens = asked[i].max_tokens;
      g.stop_ids = o.stop_ids;
      g.sample = o.sample;
      g.sample.seed += i;
      g.stop_on_repetition = asked[i].stop_on_repetition;
      alone.push_back(generate(engine, asked[i].ids, g));
    }
    for (const int64_t sequences : {1, 4, 13, 20}) {
      BatchEngine engine(*backend_, toy_.model, options(), sequences);
      for (int again = 0; again < 2; ++again) {  // the places are used again
        const auto replies = generate_batch(engine, asked, o);
        ASSERT_EQ(replies.size(), asked.size());
        for (size_t i = 0; i < asked.size(); ++i) {
          EXPECT_EQ(replies[i].ids, alone[i].ids) << i << " of " << sequences;
          EXPECT_EQ(replies[i].reason, alone[i].reason) << i << " of " << sequences;
        }
      }
    }
  }
}

TEST_F(BatchReplies, FullContextsAndCancelling) {
  EngineOptions small = options();
  small.context = 10;
  BatchEngine engine(*backend_, toy_.model, small, 2);
  std::vector<BatchPrompt> asked = prompts(5);
  for (BatchPrompt& p : asked) p.max_tokens = 100, p.stop_on_repetition = false;
  for (const BatchReply& r : generate_batch(engine, asked, {})) {
    EXPECT_EQ(r.reason, FinishReason::context_full);
  }
  asked[3].ids = random_tokens(11, 288, 1);
  EXPECT_THROW(generate_batch(engine, asked, {}), UsageError);
  const auto some = generate_batch(engine, prompts(5), {}, [](int64_t done) { return done < 2; });
  int cancelled = 0;
  for (const BatchReply& r : some) cancelled += r.reason == FinishReason::cancelled;
  EXPECT_GE(cancelled, 2);
  EXPECT_EQ(engine.length(0) + engine.length(1), 0);
  EXPECT_TRUE(generate_batch(engine, {}, {}).empty());
}

TEST_F(BatchReplies, ProbesAreAskedAsAChat) {
  const Tokenizer tokenizer = Tokenizer::parse(mini_tokenizer_text(), "mini");
  ProbeSet set;
  for (int i = 0; i < 5; ++i) {
    set.probes.push_back(probe("p" + std::to_string(i), "g", ReplyLanguage::english));
    set.probes.back().messages.back().content += std::to_string(i);
    set.probes.back().max_tokens = 6 + i;
  }
  const auto probes = sample_probes(set, 0);
  ProbeAskOptions o;
  o.stop_ids = {*tokenizer.im_end()};
  const Config& c = toy_.model.config;
  ProbeShape shape = probe_shape(probes, tokenizer, o, c, DType::f32);
  EXPECT_EQ(shape.sequences, 5);
  const auto prompt = encode_chat(tokenizer, set.probes[4].messages);
  EXPECT_EQ(shape.context, int64_t(prompt.size()) + 10);
  EXPECT_EQ(probe_shape(probes, tokenizer, o, c, DType::f32,
                        2 * KvCache::bytes(c, shape.context, DType::f32))
                .sequences,
            2);
  EngineOptions e = options();
  e.context = shape.context;
  BatchEngine engine(*backend_, toy_.model, e, shape.sequences);
  const auto results = ask_probes(only(engine), tokenizer, probes, o);
  Engine alone(*backend_, toy_.model, e);
  GenerateOptions g;
  g.max_tokens = 10;
  g.stop_ids = o.stop_ids;
  const GenerateResult expected = generate(alone, prompt, g);
  EXPECT_EQ(results[4].reply.ids, expected.ids);
  EXPECT_EQ(results[4].reply.text, tokenizer.decode(expected.ids, DecodeSpecial::skip));
  o.max_tokens = 2;
  for (const ProbeResult& r : ask_probes(only(engine), tokenizer, probes, o)) {
    EXPECT_LE(r.reply.ids.size(), 2u);
  }
}

TEST_F(BatchReplies, ItsOwnTurnsAreTheModelsReplies) {
  const Tokenizer tokenizer = Tokenizer::parse(mini_tokenizer_text(), "mini");
  ProbeSet set;
  for (int i = 0; i < 3; ++i) {
    set.probes.push_back(probe("p" + std::to_string(i), "g", ReplyLanguage::english));
    set.probes.back().max_tokens = 5;
  }
  // The second has one turn of its own, the third two, the last of them with a rule nobody keeps.
  set.probes[1].messages = {{Role::user, "one"}, {Role::assistant, ""}, {Role::user, "two"}};
  set.probes[1].own_turns = {{1, {}}};
  set.probes[2].messages = {{Role::user, "one"},
                            {Role::assistant, ""},
                            {Role::user, "two"},
                            {Role::assistant, ""},
                            {Role::user, "three"}};
  set.probes[2].own_turns = {{1, {}}, {3, {contains_rule("no such words")}}};
  for (Probe& p : set.probes) p.rules = {{Kind::not_contains, {"no such words"}}};
  const auto probes = sample_probes(set, 0);
  ProbeAskOptions o;
  o.stop_ids = {*tokenizer.im_end()};
  EngineOptions e = options();
  e.context = probe_shape(probes, tokenizer, o, toy_.model.config, DType::f32).context;
  BatchEngine engine(*backend_, toy_.model, e, 2);
  int64_t told = 0;
  const auto results = ask_probes(only(engine), tokenizer, probes, o, [&](int64_t done) {
    EXPECT_GE(done, told);
    told = done;
    return true;
  });
  EXPECT_EQ(told, 3);
  Engine alone(*backend_, toy_.model, e);
  GenerateOptions g;
  g.max_tokens = 5;
  g.stop_ids = o.stop_ids;
  std::vector<Message> said_so_far;
  for (const Message& m : set.probes[2].messages) {
    if (m.role == Role::assistant) {
      alone.reset();
      const auto reply = generate(alone, encode_chat(tokenizer, said_so_far), g);
      said_so_far.push_back({m.role, tokenizer.decode(reply.ids, DecodeSpecial::skip)});
    } else {
      said_so_far.push_back(m);
    }
    EXPECT_EQ(results[2].messages[said_so_far.size() - 1].content, said_so_far.back().content);
  }
  alone.reset();
  EXPECT_EQ(results[2].reply.ids, generate(alone, encode_chat(tokenizer, said_so_far), g).ids);
  EXPECT_EQ(results[1].messages[1].content, results[2].messages[1].content);
  EXPECT_EQ(results[2].problem, "in turn 4: contains \"no such words\"");
  // The rules of a turn are those of the target.
  o.rules = WhichRules::base;
  EXPECT_EQ(ask_probes(only(engine), tokenizer, probes, o)[2].problem, "");
}

}  // namespace
}  // namespace nibble::test
