// SPDX-License-Identifier: MIT
// Undoing, sliding and restoring a session: what follows equals what would have followed, to the
// bit.
#include <gtest/gtest.h>

#include <cstring>

#include "backend/forwarding_backend.h"
#include "backends/cpu/cpu_backend.h"
#include "generate/chat_session.h"
#include "support/toy_dir.h"

namespace nibble::test {
namespace {

class Sessions : public testing::Test {
 protected:
  Engine make_engine(int64_t context = 400) {
    return Engine(*backend_, toy_.model,
                  {context, 64, DType::f32, DType::f32, DType::bf16, Activations::none});
  }
  GenerateOptions how() const {
    GenerateOptions o;
    o.max_tokens = 9;
    o.stop_ids = {*tokenizer_.im_end()};
    o.check_collapse = false;
    return o;
  }
  std::unique_ptr<Backend> backend_ = make_cpu_backend(1);
  ToyModel toy_ = load_toy(*backend_, toy_chat_config());
  Tokenizer tokenizer_ = Tokenizer::parse(mini_tokenizer_text(), "mini");
};

TEST_F(Sessions, ACacheThatWasReadAndWrittenGoesOnToTheBit) {
  Engine a = make_engine(), b = make_engine(300);
  ChatSession sa(a, tokenizer_, {}), sb(b, tokenizer_, {});
  sa.turn("hello", how());
  sa.turn("你是誰", how());
  std::vector<std::vector<std::byte>> parts;
  a.read_cache([&](std::span<const std::byte> p) { parts.emplace_back(p.begin(), p.end()); });
  size_t next = 0;
  b.write_cache(a.tokens(), [&](std::span<std::byte> p) {
    ASSERT_EQ(p.size(), parts[next].size());
    std::memcpy(p.data(), parts[next].data(), p.size());
    ++next;
  });
  sb.restore(sa.messages(), sa.place());
  EXPECT_EQ(sb.context_tokens(), sa.context_tokens());
  const TurnResult ra = sa.turn("and now?", how()), rb = sb.turn("and now?", how());
  EXPECT_EQ(ra.generation.ids, rb.generation.ids);
  EXPECT_EQ(ra.reused_tokens, rb.reused_tokens);
  const auto la = a.logits(), lb = b.logits();
  ASSERT_EQ(la.size(), lb.size());
  EXPECT_EQ(std::memcmp(la.data(), lb.data(), la.size_bytes()), 0);
}

TEST_F(Sessions, UndoGoesBackTurnByTurn) {
  Engine a = make_engine(), b = make_engine();
  ChatSession s(a, tokenizer_, {}), plain(b, tokenizer_, {});
  EXPECT_FALSE(s.undo());
  s.turn("hello", how());
  s.turn("two", how());
  s.turn("three", how());
  EXPECT_TRUE(s.undo());
  EXPECT_TRUE(s.undo());
  EXPECT_EQ(s.messages().size(), 2u);
  plain.turn("hello", how());
  EXPECT_EQ(s.context_tokens(), plain.context_tokens());
  const TurnResult r = s.turn("你是誰", how());
  EXPECT_EQ(r.generation.ids, plain.turn("你是誰", how()).generation.ids);
  EXPECT_GT(r.reused_tokens, 0);
}

TEST_F(Sessions, UndoAndAnotherQuestionIsTheSameToTheBit) {
  for (const int back : {1, 2, 3}) {
    Engine a = make_engine(), b = make_engine();
    ChatSession s(a, tokenizer_, {}), plain(b, tokenizer_, {});
    const std::vector<std::string> turns = {"hello", "two", "three"};
    for (const std::string& t : turns) s.turn(t, how());
    for (int i = 0; i < back; ++i) EXPECT_TRUE(s.undo());
    for (int i = 0; i < 3 - back; ++i) plain.turn(turns[size_t(i)], how());
    EXPECT_EQ(s.turn("你是誰", how()).generation.ids, plain.turn("你是誰", how()).generation.ids);
    const auto la = a.logits(), lb = b.logits();
    ASSERT_EQ(la.size(), lb.size());
    EXPECT_EQ(std::memcmp(la.data(), lb.data(), la.size_bytes()), 0);
    EXPECT_EQ(a.tokens(), b.tokens());
  }
}

// Where rows know their neighbours, a token of the same question may have other bits.
class KnowsNeighbours final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
  BackendTraits traits() const override {
    BackendTraits t = ForwardingBackend::traits();
    t.batch_invariant_f32 = t.batch_invariant_16_bit = false;
    return t;
  }
};

TEST_F(Sessions, NothingUndoneIsReusedWhereBatchesDiffer) {
  KnowsNeighbours backend(*backend_);
  Engine e(backend, toy_.model, {400, 64, DType::f32, DType::f32, DType::bf16, Activations::none});
  ChatSession s(e, tokenizer_, {});
  s.turn("hello", how());
  const int64_t first = e.length();
  s.turn("two", how());
  s.undo();
  EXPECT_EQ(e.length(), first);
  EXPECT_EQ(s.turn("two", how()).reused_tokens, first);
  s.undo();
  s.undo();
  EXPECT_EQ(e.length(), 0);
}

TEST_F(Sessions, ATurnThatIsRefusedLeavesThePlace) {
  ChatSessionOptions o;
  o.slide = true;
  Engine a = make_engine(), b = make_engine();
  ChatSession s(a, tokenizer_, o), plain(b, tokenizer_, o);
  s.turn("hello", how());
  s.turn("two", how());
  s.undo();
  plain.turn("hello", how());
  EXPECT_THROW(s.turn(std::string(1000, 'x'), how()), ContextFull);
  EXPECT_EQ(s.context_tokens(), plain.context_tokens());
  EXPECT_EQ(s.turn("three", how()).generation.ids, plain.turn("three", how()).generation.ids);
  EXPECT_EQ(a.tokens(), b.tokens());
}

TEST_F(Sessions, SlidingKeepsTheSystemMessageAndTheNewest) {
  ChatSessionOptions o;
  o.slide = true;
  Engine e = make_engine(120);
  ChatSession s(e, tokenizer_, o);
  s.add({Role::system, "be brief"});
  size_t dropped = 0;
  for (int i = 0; i < 8; ++i) {
    const std::string user = "question " + std::to_string(i);
    const TurnResult r = s.turn(user, how());
    dropped += r.dropped;
    ASSERT_EQ(s.messages()[0].content, "be brief");
    EXPECT_EQ(s.messages()[1].role, Role::user);
    EXPECT_EQ(s.messages()[s.messages().size() - 2].content, user);
    EXPECT_LE(e.length(), 120);
  }
  EXPECT_GT(dropped, 0u);
  EXPECT_TRUE(s.undo());
  // A message that is too long alone is refused, and nothing is forgotten for it.
  const auto before = s.messages().size();
  EXPECT_THROW(s.turn(std::string(500, 'x'), how()), ContextFull);
  EXPECT_EQ(s.messages().size(), before);
  EXPECT_NO_THROW(s.turn("short", how()));
}

TEST_F(Sessions, AnotherSystemMessageKeepsTheTurns) {
  Engine e = make_engine();
  ChatSession s(e, tokenizer_, {});
  s.turn("hello", how());
  s.set_system("be brief");
  ASSERT_EQ(s.messages().size(), 3u);
  EXPECT_EQ(s.messages()[0].role, Role::system);
  s.set_system("");
  EXPECT_EQ(s.messages().size(), 2u);
  EXPECT_NO_THROW(s.turn("next", how()));
}

}  // namespace
}  // namespace nibble::test
