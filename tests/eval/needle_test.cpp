// SPDX-License-Identifier: MIT
// The needle test with made-up partners that remember or forget, and with a real engine.
#include "eval/needle.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "support/backends.h"
#include "support/toy_model.h"

namespace nibble::test {
namespace {

// Counts a token per word; answers with what `memory` makes of the whole conversation.
class FakePartner final : public Conversation {
 public:
  using Memory = std::function<std::string(const std::string& text)>;
  explicit FakePartner(Memory memory) : memory_(std::move(memory)) {}
  int64_t count_tokens(std::string_view text) const override {
    int64_t n = 0;
    bool inside = false;
    for (char c : text) {
      const bool space = c == ' ' || c == '\n';
      n += !space && !inside;
      inside = !space;
    }
    return n;
  }
  std::string ask(const std::string& text, int64_t max_tokens) override {
    text_ += text + "\n";
    limits.push_back(max_tokens);
    turns.push_back(text);
    return memory_(text_);
  }
  int64_t length() const override { return count_tokens(text_); }

  std::vector<int64_t> limits;
  std::vector<std::string> turns;

 private:
  Memory memory_;
  std::string text_;
};

std::string remembers(const std::string& text) {
  const size_t at = text.find("GEMINI");
  return at == std::string::npos ? "I do not know" : "It is " + text.substr(at, 16) + ".";
}
// Sees the last 300 characters only.
std::string forgets(const std::string& text) {
  return remembers(text.substr(text.size() < 300 ? 0 : text.size() - 300));
}

TEST(Needle, APartnerThatRemembersPasses) {
  FakePartner partner(remembers);
  Haystack haystack;
  std::vector<int64_t> heard;
  const NeedleResult r = run_needle(partner, haystack, {.target_tokens = 400, .chunk_tokens = 100},
                                    [&](int64_t n) { heard.push_back(n); });
  EXPECT_TRUE(r.found);
  EXPECT_GE(r.tokens, 400);
  EXPECT_LT(r.tokens, 440);  // overshoots by less than a line
  EXPECT_EQ(r.chunks, int64_t(heard.size()));
  EXPECT_GE(r.chunks, 3);
  // The secret once, filler with replies of one token, then the question.
  EXPECT_EQ(partner.turns.size(), size_t(r.chunks) + 2);
  EXPECT_NE(partner.turns.front().find("GEMINI-CODE-7788"), std::string::npos);
  EXPECT_EQ(partner.limits.front(), 1);
  EXPECT_EQ(partner.limits[1], 1);
  EXPECT_EQ(partner.limits.back(), 50);
  for (size_t i = 1; i < partner.turns.size(); ++i) {
    EXPECT_EQ(partner.turns[i].find("GEMINI"), std::string::npos) << i;
  }
}

TEST(Needle, APartnerThatForgetsFails) {
  FakePartner partner(forgets);
  Haystack haystack;
  const NeedleResult r = run_needle(partner, haystack, {.target_tokens = 400, .chunk_tokens = 50});
  EXPECT_FALSE(r.found);
  EXPECT_EQ(r.reply, "I do not know");
}

TEST(Needle, AnotherSecretIsAskedForAndOnlyThatCounts) {
  FakePartner partner([](const std::string&) { return std::string("GEMINI-CODE-7788"); });
  Haystack haystack;
  EXPECT_FALSE(run_needle(partner, haystack, {.secret = "blue", .target_tokens = 50}).found);
  EXPECT_NE(partner.turns.front().find("blue"), std::string::npos);
}

TEST(Needle, ReplyHasSecret) {
  EXPECT_TRUE(reply_has_secret("the key: A-1.", "A-1"));
  EXPECT_FALSE(reply_has_secret("the key: A-2.", "A-1"));
  EXPECT_FALSE(reply_has_secret("anything", ""));
}

TEST(Needle, RefusesWhatWouldProveNothing) {
  FakePartner partner(remembers);
  Haystack haystack, telling("the key is blue\n");
  EXPECT_THROW(run_needle(partner, haystack, {.secret = ""}), UsageError);
  EXPECT_THROW(run_needle(partner, telling, {.secret = "blue", .target_tokens = 500}), UsageError);
  EXPECT_THROW(run_needle(partner, haystack, {.chunk_tokens = 0}), UsageError);
  EXPECT_THROW(Haystack("\n \n"), UsageError);
}

TEST(Haystack, GoesRoundTheLinesOfAText) {
  const FakePartner counter(remembers);
  Haystack h("one two\n\nthree\n");
  EXPECT_EQ(h.next(4, counter), "one two\nthree\none two\n");
  EXPECT_EQ(h.next(1, counter), "three\n");
}

TEST(Haystack, TheBuiltInTextDoesNotRepeatItself) {
  const FakePartner counter(remembers);
  Haystack h;
  const std::string a = h.next(200, counter), b = h.next(200, counter);
  EXPECT_NE(a, b);
  EXPECT_GE(counter.count_tokens(a), 200);
}

// A token per byte, modulo the vocabulary.
TurnEncoder byte_encoder(int64_t vocabulary) {
  const auto encode = [vocabulary](std::string_view text) {
    std::vector<int32_t> ids;
    for (char c : text) ids.push_back(int32_t(uint8_t(c) % uint64_t(vocabulary)));
    return ids;
  };
  return {encode,
          encode,
          {1, 2},
          [](std::span<const int32_t> ids) {
            std::string s;
            for (int32_t id : ids) s += std::to_string(id) + " ";
            return s;
          },
          {}};
}

TEST(EngineConversation, PersistentAndRebuiltCachesGiveTheSameReplies) {
  for (const BackendCase& c : backend_cases()) {
    const auto backend = c.make();
    LoadOptions load;
    load.dtype = c.weights;
    const ToyModel toy = load_toy(*backend, toy_config(), load);
    EngineOptions o{256, 16, c.compute, c.stat, c.compute, Activations::none};
    std::vector<std::vector<std::string>> replies;
    for (const CacheUse use : {CacheUse::rebuild, CacheUse::persistent}) {
      Engine engine(*backend, toy.model, o);
      EngineConversation talk(engine, byte_encoder(toy.model.config.V), use);
      replies.push_back({talk.ask("hello there", 5), talk.ask("and again", 5)});
      // Two turns of text, two replies of five, each closed by two tokens.
      EXPECT_EQ(talk.length(), 11 + 9 + 2 * (5 + 2));
      EXPECT_EQ(talk.count_tokens("abc"), 3);
    }
    EXPECT_EQ(replies[0], replies[1]) << c.name;
    EXPECT_NE(replies[0][0], replies[0][1]) << c.name;
  }
}

TEST(EngineConversation, ARandomModelFailsHonestly) {
  const auto backend = make_cpu_backend(1);
  const ToyModel toy = load_toy(*backend, toy_config());
  Engine engine(*backend, toy.model, {512, 64, DType::f32, DType::f32, DType::f32});
  EngineConversation talk(engine, byte_encoder(toy.model.config.V), CacheUse::persistent);
  Haystack haystack;
  const NeedleResult r = run_needle(talk, haystack, {.target_tokens = 200, .max_tokens = 10});
  EXPECT_FALSE(r.found);
}

}  // namespace
}  // namespace nibble::test
