// SPDX-License-Identifier: MIT
// What a fine-tune cost: losses, divergences and choices against the plain forward of whole
// sequences, one at a time.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "eval/damage/choice_scores.h"
#include "eval/damage/text_compare.h"
#include "model/evaluate.h"
#include "support/tested_backend.h"
#include "support/toy_model.h"
#include "tokenizer/mini_tokenizer.h"

namespace nibble::test {
namespace {

Config chat_config() {
  Config c = toy_config();
  c.V = 288;  // holds the mini tokenizer
  return c;
}

class Damage : public testing::Test {
 protected:
  TextReader reader(const ToyModel& toy) { return {*backend_, toy.model, {}}; }
  // Log-probabilities of the token at `at`, from the whole sequence up to it by itself.
  std::vector<double> predicted(const ToyModel& toy, const std::vector<int64_t>& ids, size_t at) {
    const std::vector<int64_t> before(ids.begin(), ids.begin() + std::ptrdiff_t(at));
    const Evaluation e = evaluate(*backend_, toy.model, before, {}, 1, int64_t(at), {});
    const size_t V = size_t(toy.model.config.V);
    const std::span last(e.logits.data() + (at - 1) * V, V);
    double sum = 0;
    for (const float z : last) sum += std::exp(double(z));
    std::vector<double> out;
    for (const float z : last) out.push_back(double(z) - std::log(sum));
    return out;
  }
  static TextWindows windows(std::vector<size_t> lengths) {
    TextWindows w{"text", {}};
    uint64_t n = 0;
    for (const size_t length : lengths) {
      w.ids.emplace_back();
      for (size_t i = 0; i < length; ++i) {
        w.ids.back().push_back(int64_t(philox(7, 1, n++)[0] % 288));
      }
    }
    return w;
  }

  std::unique_ptr<Backend> backend_ = make_model_backend();
  ToyModel one_ = load_toy(*backend_, chat_config(), {}, 1),
           two_ = load_toy(*backend_, chat_config(), {}, 2);
  const double bound_ = testing_cuda() ? 1e-3 : 1e-5;
};

TEST_F(Damage, LossesAreThoseOfWholeSequencesHoweverTheyArePacked) {
  // More tokens than one pass takes.
  const TextWindows w = windows({500, 3, 2, 499, 500, 501, 77, 500});
  const TextLoss loss = text_loss(reader(one_), w);
  double sum = 0;
  for (size_t i = 0; i < w.ids.size(); ++i) {
    const auto T = int64_t(w.ids[i].size());
    const Evaluation e = evaluate(*backend_, one_.model, w.ids[i], w.ids[i], 1, T, {});
    EXPECT_NEAR(loss.windows[i], e.loss, bound_ * e.loss) << i;
    sum += e.loss * double(T - 1);
  }
  EXPECT_EQ(loss.tokens, 500 + 3 + 2 + 499 + 500 + 501 + 77 + 500 - 8);
  EXPECT_NEAR(loss.loss, sum / double(loss.tokens), bound_ * loss.loss);
  EXPECT_GT(loss.standard_error, 0);
}

TEST_F(Damage, AModelAgainstItselfIsExactlyTheSame) {
  const TextWindows w = windows({300, 20, 400, 512, 512, 512});
  const TextComparison c = compare_on_text(reader(one_), reader(one_), w, 10);
  EXPECT_EQ(c.divergence.loss, 0);
  for (const double d : c.divergence.windows) EXPECT_EQ(d, 0);
  EXPECT_EQ(c.change.loss, 0);
  EXPECT_EQ(c.agreement, 1);
  EXPECT_EQ(c.agreed, c.model.tokens);
  EXPECT_EQ(c.base.loss, c.model.loss);
  EXPECT_TRUE(c.moved.empty());
}

TEST_F(Damage, DivergencesAreThoseOfTheDefinition) {
  const TextWindows w = windows({6, 9});
  const TextComparison c = compare_on_text(reader(one_), reader(two_), w, 3);
  double sum = 0, largest = 0;
  int64_t agreed = 0;
  for (const auto& ids : w.ids) {
    for (size_t at = 1; at < ids.size(); ++at) {
      const auto a = predicted(one_, ids, at), b = predicted(two_, ids, at);
      double kl = 0;
      for (size_t v = 0; v < a.size(); ++v) kl += std::exp(a[v]) * (a[v] - b[v]);
      sum += kl;
      largest = std::max(largest, kl);
      agreed += std::ranges::max_element(a) - a.begin() == std::ranges::max_element(b) - b.begin();
    }
  }
  EXPECT_NEAR(c.divergence.loss, sum / 13, 1e-3 * sum / 13);
  EXPECT_GT(c.divergence.loss, 0.1);
  EXPECT_EQ(c.agreed, agreed);
  ASSERT_EQ(c.moved.size(), 3u);
  EXPECT_NEAR(c.moved[0].divergence, largest, 1e-3 * largest);
  EXPECT_GE(c.moved[0].divergence, c.moved[1].divergence);
  EXPECT_GE(c.moved[1].divergence, c.moved[2].divergence);
  const MovedToken& m = c.moved[0];
  const auto& ids = w.ids[size_t(m.window)];
  const auto now = predicted(two_, ids, size_t(m.at));
  EXPECT_NEAR(m.loss, -now[size_t(ids[size_t(m.at)])], 1e-3 * m.loss);
  EXPECT_EQ(m.top, std::ranges::max_element(now) - now.begin());
  EXPECT_NEAR(m.top_probability, std::exp(*std::ranges::max_element(now)), 1e-3);
}

TEST_F(Damage, OtherVocabulariesAndTokensOutsideAreRefused) {
  const ToyModel small = load_toy(*backend_, toy_config());
  EXPECT_THROW(compare_on_text(reader(small), reader(one_), windows({5}), 1), UsageError);
  TextWindows w = windows({5});
  w.ids[0][3] = 288;
  EXPECT_THROW(text_loss(reader(one_), w), UsageError);
  w.ids[0][3] = -1;
  EXPECT_THROW(text_loss(reader(one_), w), UsageError);
  EXPECT_THROW(text_loss(reader(one_), windows({513})), UsageError);
}

TEST_F(Damage, ChoicesAreScoredAsIfEachStoodAlone) {
  const Tokenizer tokenizer = Tokenizer::parse(mini_tokenizer_text(), "mini");
  ChoiceSet set{"set", ChoiceForm::choices, {}};
  // Many prompts in a pass, choices of one and of many tokens, other numbers of them.
  for (int i = 0; i < 40; ++i) {
    ChoiceQuestion q;
    q.id = std::to_string(i);
    q.question = "question " + std::string(size_t(i * 5 % 37), 'x') + ":";
    q.choices = {" yes", " no " + std::to_string(i), "n"};
    if (i % 3 == 0) q.choices.push_back(" a much longer choice, " + q.question);
    q.answer = i % 3;
    set.questions.push_back(q);
  }
  const auto encoded = encode_questions(set, tokenizer);
  const auto results = score_choices(reader(one_), set, encoded);
  ASSERT_EQ(results.size(), 40u);
  for (size_t i = 0; i < results.size(); i += 3) {
    int64_t best = 0;
    std::vector<double> expected;
    for (const auto& choice : encoded[i].choices) {
      std::vector<int64_t> ids(encoded[i].prompt.begin(), encoded[i].prompt.end());
      double sum = 0;
      for (const int32_t id : choice) {
        ids.push_back(id);
        sum += predicted(one_, ids, ids.size() - 1)[size_t(id)];
      }
      expected.push_back(sum);
      if (sum > expected[size_t(best)]) best = int64_t(expected.size()) - 1;
    }
    for (size_t k = 0; k < expected.size(); ++k) {
      EXPECT_NEAR(results[i].log_likelihood[k], expected[k], bound_ * std::abs(expected[k]))
          << i << ", " << k;
    }
    EXPECT_EQ(results[i].best, best) << i;
  }
  const ChoiceScore score = score_of(set, encoded, results);
  int64_t right = 0;
  for (size_t i = 0; i < results.size(); ++i) right += results[i].best == int64_t(i) % 3;
  EXPECT_EQ(score.plain.passed, right);
  EXPECT_EQ(score.plain.total, 40);
  const double p = double(right) / 40;
  EXPECT_NEAR(score.plain.standard_error(), 100 * std::sqrt(p * (1 - p) / 39), 1e-12);

  const auto others = score_choices(reader(two_), set, encoded);
  const ChoiceChanges c = changes_of(set, results, others);
  int64_t changed = 0;
  for (size_t i = 0; i < 40; ++i) changed += results[i].best != others[i].best;
  EXPECT_EQ(c.changed, changed);
  EXPECT_EQ(c.won - c.lost, score_of(set, encoded, others).plain.passed - right);
  EXPECT_EQ(changes_of(set, results, results).changed, 0);
}

TEST_F(Damage, ALongerChoiceWinsWhereItsCharactersAreCounted) {
  const Tokenizer tokenizer = Tokenizer::parse(mini_tokenizer_text(), "mini");
  ChoiceSet set{"set", ChoiceForm::choices, {{"1", "question:", {"n", " a much longer one"}, 0}}};
  const auto encoded = encode_questions(set, tokenizer);
  const auto r = score_choices(reader(one_), set, encoded)[0];
  const bool longer = r.log_likelihood[1] / 17 > r.log_likelihood[0] / 1;
  EXPECT_EQ(r.best_by_length, longer ? 1 : 0);
  EXPECT_EQ(r.best, r.log_likelihood[1] > r.log_likelihood[0] ? 1 : 0);
}

TEST_F(Damage, ALastWordIsRightWhereTheModelWouldSayIt) {
  const Tokenizer tokenizer = Tokenizer::parse(mini_tokenizer_text(), "mini");
  ChoiceSet set{"set", ChoiceForm::last_word, {{"1", "abc", {"de"}, 0}, {"2", "abc", {"de"}, 0}}};
  std::vector<EncodedQuestion> encoded = encode_questions(set, tokenizer);
  // Greedily, as the model goes on from the first prompt.
  std::vector<int64_t> ids(encoded[0].prompt.begin(), encoded[0].prompt.end());
  encoded[0].choices[0].clear();
  for (int i = 0; i < 3; ++i) {
    ids.push_back(0);
    const auto p = predicted(one_, ids, ids.size() - 1);
    ids.back() = std::ranges::max_element(p) - p.begin();
    encoded[0].choices[0].push_back(int32_t(ids.back()));
  }
  encoded[1].choices[0] = encoded[0].choices[0];
  encoded[1].choices[0].back() = (encoded[1].choices[0].back() + 1) % 288;
  const auto results = score_choices(reader(one_), set, encoded);
  EXPECT_TRUE(results[0].greedy);
  EXPECT_FALSE(results[1].greedy);
  EXPECT_EQ(score_of(set, encoded, results).plain.passed, 1);
}

TEST(ChoiceTokens, AreWhatTheJoinedTextHasBeyondTheQuestion) {
  const Tokenizer tokenizer = Tokenizer::parse(mini_tokenizer_text(), "mini");
  ChoiceSet set{"set", ChoiceForm::choices, {{"1", "Who is it? ", {"me", "you"}, 0}}};
  const auto e = encode_questions(set, tokenizer)[0];
  EXPECT_EQ(e.prompt, tokenizer.encode("Who is it?"));
  for (size_t k = 0; k < 2; ++k) {
    std::vector<int32_t> all = e.prompt;
    all.insert(all.end(), e.choices[k].begin(), e.choices[k].end());
    EXPECT_EQ(tokenizer.decode(all), "Who is it? " + set.questions[0].choices[k]);
  }
  set.questions[0].question = "  ";
  EXPECT_THROW(encode_questions(set, tokenizer), FormatError);
}

void refused(const std::string& text, const std::string& part) {
  try {
    parse_choices(text, "c.jsonl");
    ADD_FAILURE() << "accepted: " << text;
  } catch (const FormatError& e) {
    EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << part << " in\n" << e.what();
  }
}

TEST(ChoiceFile, BothFormsAndTheirMistakes) {
  const std::string good = R"({"question": "1+1=", "choices": ["2", "3"], "answer": 0})";
  const ChoiceSet set = parse_choices(good + "\n\n{\"id\":\"b\"," + good.substr(1) + "\r\n", "c");
  ASSERT_EQ(set.questions.size(), 2u);
  EXPECT_EQ(set.questions[0].id, "line 1");
  EXPECT_EQ(set.questions[1].id, "b");
  EXPECT_EQ(set.questions[1].choices[1], "3");
  const ChoiceSet last = parse_choices(R"({"question": "he said", "answer": " yes"})", "c");
  EXPECT_EQ(last.form, ChoiceForm::last_word);
  EXPECT_EQ(last.questions[0].choices, (std::vector<std::string>{" yes"}));
  refused("", "there is no question");
  refused("{", "c.jsonl:1: no valid JSON");
  refused("\n[]", "c.jsonl:2: expected an object");
  refused(R"({"question": "q", "choices": ["a", "b"]})", "the key 'answer' is missing");
  refused(R"({"question": "q"})", "the key 'answer' is missing");
  refused(R"({"choices": ["a", "b"], "answer": 0})", "the key 'question' is missing");
  refused(R"({"question": "q", "choices": ["a", "b"], "answer": 2})", "2 is not the number");
  refused(R"({"question": "q", "choices": ["a", "b"], "answer": -1})", "-1 is not the number");
  refused(R"({"question": "q", "choices": ["a", "b"], "answer": "a"})", "is not the number");
  refused(R"({"question": "q", "choices": ["a"], "answer": 0})", "expected a list of 2 to 64");
  refused(R"({"question": "q", "choices": ["a", ""], "answer": 0})", "the text is empty");
  refused(R"({"question": "q", "choice": ["a", "b"], "answer": 0})", "did you mean 'choices'?");
  refused(R"({"question": "q", "answer": 0})", "expected a text");
  refused(good + "\n" + R"({"question": "q", "answer": "a"})", "different scores");
  const std::string named = R"({"id": "x", "question": "q", "answer": "a"})";
  refused(named + "\n" + named, "the id 'x' is given twice");
}

}  // namespace
}  // namespace nibble::test
