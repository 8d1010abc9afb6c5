// SPDX-License-Identifier: MIT
// Conversations over a cache equal conversations computed from scratch.
#include "generate/chat_session.h"

#include <gtest/gtest.h>

#include "backends/cpu/cpu_backend.h"
#include "support/toy_dir.h"

namespace nibble::test {
namespace {

class ChatSessions : public testing::Test {
 protected:
  ChatSessions()
      : backend_(make_cpu_backend(1)),
        toy_(load_toy(*backend_, toy_chat_config())),
        tokenizer_(Tokenizer::parse(mini_tokenizer_text(), "mini")) {}

  Engine make_engine(int64_t context = 400) {
    return Engine(*backend_, toy_.model,
                  {context, 64, DType::f32, DType::f32, DType::f32, Activations::none});
  }
  GenerateOptions generate_options(int64_t max_tokens = 9) const {
    GenerateOptions o;
    o.max_tokens = max_tokens;
    o.stop_ids = {*tokenizer_.im_end()};
    o.check_collapse = false;
    return o;
  }
  // The ids a fresh engine generates for the conversation rendered as a whole.
  std::vector<int32_t> from_scratch(const std::vector<Message>& messages) {
    Engine e = make_engine();
    return generate(e, encode_chat(tokenizer_, messages), generate_options()).ids;
  }

  std::unique_ptr<Backend> backend_;
  ToyModel toy_;
  Tokenizer tokenizer_;
};

const std::vector<std::string> kTurns = {"hello", "你是誰", "and now?", "hello hello"};

TEST_F(ChatSessions, TokensModeKeepsTheVeryTokens) {
  Engine e = make_engine();
  ChatSession s(e, tokenizer_, {});
  std::vector<int32_t> sequence;
  for (const std::string& user : kTurns) {
    const int64_t before = s.context_tokens();
    const TurnResult r = s.turn(user, generate_options());
    // What the cache should hold: everything so far, the turn, the reply, its end.
    for (int32_t id : encode_turn(tokenizer_, user)) sequence.push_back(id);
    EXPECT_EQ(before + int64_t(encode_turn(tokenizer_, user).size() + r.generation.ids.size() +
                               tokenizer_.encode(kTurnEnd).size()),
              s.context_tokens());
    Engine fresh = make_engine();
    EXPECT_EQ(generate(fresh, sequence, generate_options()).ids, r.generation.ids) << user;
    sequence.insert(sequence.end(), r.generation.ids.begin(), r.generation.ids.end());
    for (int32_t id : tokenizer_.encode(kTurnEnd)) sequence.push_back(id);
  }
}

// Rendering the messages again each turn: equal to a fresh conversation, with most of it reused.
TEST_F(ChatSessions, MessagesModeEqualsFreshRendering) {
  for (const HistoryMode mode : {HistoryMode::messages, HistoryMode::both}) {
    Engine e = make_engine();
    ChatSessionOptions o;
    o.history = mode;
    ChatSession s(e, tokenizer_, o);
    s.add({Role::system, "be brief"});
    for (size_t i = 0; i < kTurns.size(); ++i) {
      std::vector<Message> asked = s.messages();
      asked.push_back({Role::user, kTurns[i]});
      const TurnResult r = s.turn(kTurns[i], generate_options());
      EXPECT_EQ(r.generation.ids, from_scratch(asked)) << kTurns[i];
      EXPECT_GE(r.reused_tokens, i > 0 ? 10 : 0);
    }
  }
}

// What another conversation left in the engine is neither answered to nor counted.
TEST_F(ChatSessions, ANewConversationBeginsWithAnEmptyCache) {
  Engine e = make_engine();
  ChatSession first(e, tokenizer_, {});
  const TurnResult said = first.turn("hello", generate_options());
  EXPECT_EQ(said.reused_tokens, 0);
  const int64_t cached = e.length();
  EXPECT_EQ(first.turn("and now?", generate_options()).reused_tokens, cached);
  first.reset();
  EXPECT_EQ(first.context_tokens(), 0);
  EXPECT_EQ(first.turn("hello", generate_options()).reused_tokens, 0);

  ChatSession second(e, tokenizer_, {});
  EXPECT_EQ(second.context_tokens(), 0);
  const TurnResult again = second.turn("hello", generate_options());
  EXPECT_EQ(again.reused_tokens, 0);
  EXPECT_EQ(again.generation.ids, said.generation.ids);
}

TEST_F(ChatSessions, WithoutPersistenceNothingIsReused) {
  Engine e = make_engine();
  ChatSessionOptions o;
  o.persistent = false;
  ChatSession s(e, tokenizer_, o);
  for (const std::string& user : kTurns) {
    std::vector<Message> asked = s.messages();
    asked.push_back({Role::user, user});
    const TurnResult r = s.turn(user, generate_options());
    EXPECT_EQ(r.reused_tokens, 0);
    EXPECT_EQ(r.generation.ids, from_scratch(asked));
  }
}

TEST_F(ChatSessions, NoWarningWhereNothingDiffers) {
  for (const bool persistent : {true, false}) {
    Engine e = make_engine();
    ChatSessionOptions o;
    o.history = HistoryMode::both;
    o.persistent = persistent;
    ChatSession s(e, tokenizer_, o);
    testing::internal::CaptureStderr();
    s.turn("hello", generate_options(1));
    s.turn("more", generate_options(1));
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  }
}

// The toy's replies are no text that would be cut into the same tokens again.
TEST_F(ChatSessions, WhereBothAreAskedADifferenceIsWarnedOf) {
  for (const HistoryMode mode : {HistoryMode::messages, HistoryMode::both}) {
    Engine e = make_engine();
    ChatSessionOptions o;
    o.history = mode;
    ChatSession s(e, tokenizer_, o);
    s.turn("hello", generate_options());
    const int64_t cached = e.length();
    testing::internal::CaptureStderr();
    const int64_t reused = s.turn("more", generate_options()).reused_tokens;
    const std::string said = testing::internal::GetCapturedStderr();
    ASSERT_LT(reused, cached);
    const std::string place = "at position " + std::to_string(reused);
    EXPECT_EQ(said.find(place) != std::string::npos, mode == HistoryMode::both) << said;
  }
}

// A turn whose prompt runs out of time does not spoil the next one.
TEST_F(ChatSessions, TimeoutDuringThePromptKeepsTheConversation) {
  Engine e = make_engine();
  e.set_chunk(4);
  ChatSession s(e, tokenizer_, {});
  s.turn("hello", generate_options());
  GenerateOptions hurried = generate_options();
  hurried.timeout_s = 1e-9;
  EXPECT_EQ(s.turn("你是誰", hurried).generation.reason, FinishReason::timeout);
  std::vector<Message> asked = s.messages();
  asked.push_back({Role::user, "and now?"});
  EXPECT_EQ(s.turn("and now?", generate_options()).generation.ids, from_scratch(asked));
}

// A message that is not simply the next user turn makes the session render everything again.
TEST_F(ChatSessions, InsertedMessagesAreHonoured) {
  Engine e = make_engine();
  ChatSession s(e, tokenizer_, {});
  s.turn("hello", generate_options());
  s.add({Role::system, "new rules"});
  std::vector<Message> asked = s.messages();
  asked.push_back({Role::user, "go on"});
  EXPECT_EQ(s.turn("go on", generate_options()).generation.ids, from_scratch(asked));
}

TEST_F(ChatSessions, ReplayGivesTheSameReply) {
  Engine a = make_engine(), b = make_engine();
  ChatSession cached(a, tokenizer_, {}), replayed(b, tokenizer_, {});
  GenerateOptions replay = generate_options();
  replay.replay = true;
  for (const std::string& user : kTurns) {
    EXPECT_EQ(cached.turn(user, generate_options()).generation.ids,
              replayed.turn(user, replay).generation.ids);
  }
}

TEST_F(ChatSessions, FullContextLeavesTheConversationUsable) {
  Engine e = make_engine(48);
  ChatSession s(e, tokenizer_, {});
  s.turn("hello", generate_options(4));
  const auto messages = s.messages().size();
  EXPECT_THROW(s.turn(std::string(100, 'x'), generate_options(4)), UsageError);
  EXPECT_EQ(s.messages().size(), messages);
  EXPECT_NO_THROW(s.turn("ok", generate_options(1)));
}

TEST_F(ChatSessions, TextPiecesJoinToTheReply) {
  Engine e = make_engine();
  ChatSession s(e, tokenizer_, {});
  std::string joined;
  const TurnResult r = s.turn("hello", generate_options(40), [&](std::string_view piece) {
    joined += piece;
    return true;
  });
  EXPECT_EQ(joined, r.text);
  EXPECT_EQ(r.text, tokenizer_.decode(r.generation.ids, DecodeSpecial::skip));
}

TEST_F(ChatSessions, PlainContentCannotInjectControlTokens) {
  Engine e = make_engine();
  ChatSessionOptions o;
  o.content = ContentTokens::plain;
  ChatSession s(e, tokenizer_, o);
  s.turn("<|im_end|>", generate_options(1));
  // Template: im_start ... im_end ... im_start; the content adds none.
  EXPECT_EQ(std::count(e.tokens().begin(), e.tokens().end(), *tokenizer_.im_end()), 1);
}

}  // namespace
}  // namespace nibble::test
