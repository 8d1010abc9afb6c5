// SPDX-License-Identifier: MIT
#include "eval/damage/choice_scores.h"

#include <algorithm>
#include <cmath>
#include <mutex>

#include "core/error.h"
#include "core/progress.h"
#include "core/threads/share_out.h"
#include "tokenizer/unicode.h"

namespace nibble {
namespace {

// Prompts and their longest choices that lie in the cache together.
constexpr int64_t kSlots = 4096;

int64_t slots_of(const EncodedQuestion& q) {
  size_t longest = 1;
  for (const auto& c : q.choices) longest = std::max(longest, c.size());
  return int64_t(q.prompt.size() + longest - 1);  // a last token is predicted, never fed
}

// Characters, without the white space a choice begins with.
double length_of(const std::string& choice) {
  const std::string text = repair_utf8(choice);
  size_t at = std::min(text.find_first_not_of(" \t\r\n"), text.size());
  double n = 0;
  for (; at < text.size(); at += decode_valid(text.data() + at).length) ++n;
  return std::max(1.0, n);
}

// Questions whose prompts are in the cache at the same time.
class QuestionGroup {
 public:
  QuestionGroup(PackedPass& pass, std::span<const EncodedQuestion> questions,
                std::span<ChoiceResult> results)
      : pass_(pass), questions_(questions), results_(results) {}

  void run() {
    size_t most = 0;
    for (const EncodedQuestion& q : questions_) most = std::max(most, q.choices.size());
    prompts(most);
    for (size_t k = 0; k < most; ++k) rest_of_choice(k);
  }

 private:
  // Every prompt, and the first token of every choice.
  void prompts(size_t most) {
    std::vector<PassSequence> sequences;
    std::vector<std::vector<int32_t>> first(most);
    int64_t slot = 0;
    for (const EncodedQuestion& q : questions_) {
      slots_.push_back(slot);
      sequences.push_back({q.prompt, slot, 0, int64_t(q.prompt.size()) - 1, 1});
      slot += slots_of(q);
      for (size_t k = 0; k < most; ++k) {
        first[k].push_back(k < q.choices.size() ? q.choices[k].front() : -1);
      }
    }
    pass_.run(sequences);
    const auto scores = pass_.score(first);
    for (size_t i = 0; i < questions_.size(); ++i) {
      for (size_t k = 0; k < questions_[i].choices.size(); ++k) add(i, k, scores[k][i]);
    }
  }

  // The k-th choice of every question behind its prompt, in the place of the one before.
  void rest_of_choice(size_t k) {
    std::vector<PassSequence> sequences;
    std::vector<int32_t> targets;
    std::vector<size_t> owner;
    for (size_t i = 0; i < questions_.size(); ++i) {
      const EncodedQuestion& q = questions_[i];
      if (k >= q.choices.size() || q.choices[k].size() < 2) continue;
      const std::span<const int32_t> all(q.choices[k]);
      const auto fed = int64_t(all.size()) - 1;
      sequences.push_back({all.first(size_t(fed)), slots_[i], int64_t(q.prompt.size()), 0, fed});
      targets.insert(targets.end(), all.begin() + 1, all.end());
      owner.insert(owner.end(), size_t(fed), i);
    }
    if (sequences.empty()) return;
    pass_.run(sequences);
    const std::vector<std::vector<int32_t>> lists = {targets};
    const auto scores = pass_.score(lists);
    for (size_t row = 0; row < owner.size(); ++row) add(owner[row], k, scores[0][row]);
  }

  void add(size_t question, size_t choice, const TokenScore& score) {
    ChoiceResult& r = results_[question];
    r.log_likelihood[choice] += score.log_probability;
    // Of a last word there is one choice; of several nobody asks.
    r.greedy = r.greedy && (choice > 0 || score.greedy);
  }

  PackedPass& pass_;
  std::span<const EncodedQuestion> questions_;
  std::span<ChoiceResult> results_;
  std::vector<int64_t> slots_;
};

void choose(ChoiceResult& r, const ChoiceQuestion& q) {
  for (size_t k = 1; k < r.log_likelihood.size(); ++k) {
    const auto by_length = [&](int64_t c) {
      return r.log_likelihood[size_t(c)] / length_of(q.choices[size_t(c)]);
    };
    const auto c = int64_t(k);
    if (r.log_likelihood[k] > r.log_likelihood[size_t(r.best)]) r.best = c;
    if (by_length(c) > by_length(r.best_by_length)) r.best_by_length = c;
  }
}

}  // namespace

std::vector<EncodedQuestion> encode_questions(const ChoiceSet& set, const Tokenizer& tokenizer) {
  std::vector<EncodedQuestion> out;
  for (const ChoiceQuestion& q : set.questions) {
    const size_t end = q.question.find_last_not_of(" \t\r\n");
    if (end == std::string::npos) {
      throw_format("{}: the question '{}' is white space alone", set.name, q.id);
    }
    EncodedQuestion e;
    e.prompt =
        tokenizer.encode(std::string_view(q.question).substr(0, end + 1), SpecialTokens::plain);
    for (const std::string& choice : q.choices) {
      std::vector<int32_t> all = tokenizer.encode(q.question + choice, SpecialTokens::plain);
      if (all.size() <= e.prompt.size()) {
        throw_format(
            "{}: the question '{}' and a choice of it, '{}', have no token more than the "
            "question alone",
            set.name, q.id, choice);
      }
      e.choices.emplace_back(all.begin() + std::ptrdiff_t(e.prompt.size()), all.end());
    }
    out.push_back(std::move(e));
  }
  return out;
}

std::vector<ChoiceResult> score_choices(TextReaders readers, const ChoiceSet& set,
                                        std::span<const EncodedQuestion> encoded) {
  int64_t slots = kSlots, all = 0;
  for (const EncodedQuestion& q : encoded) {
    slots = std::max(slots, slots_of(q));
    all += slots_of(q);
  }
  std::vector<ChoiceResult> results(encoded.size());
  for (size_t i = 0; i < encoded.size(); ++i) {
    results[i].log_likelihood.resize(encoded[i].choices.size());
    results[i].greedy = true;
  }
  Progress progress(set.name, encoded.size(), "questions");
  std::mutex one_draws;
  share_out(int64_t(encoded.size()), readers.size(), [&](size_t r, int64_t first, int64_t last) {
    const TextReader& reader = readers[r];
    PackedPass pass(reader.backend, reader.model, reader.options, std::min(slots, all));
    for (auto begin = size_t(first); begin < size_t(last);) {
      size_t end = begin;
      for (int64_t used = 0; end < size_t(last); ++end) {
        used += slots_of(encoded[end]);
        if (used > pass.slots()) break;
      }
      const size_t count = end - begin;
      QuestionGroup(pass, encoded.subspan(begin, count), std::span(results).subspan(begin, count))
          .run();
      begin = end;
      const std::lock_guard lock(one_draws);
      progress.advance(count);
    }
  });
  for (size_t i = 0; i < results.size(); ++i) choose(results[i], set.questions[i]);
  return results;
}

bool is_right(const ChoiceSet& set, size_t question, const ChoiceResult& r) {
  return set.form == ChoiceForm::last_word ? r.greedy : r.best == set.questions[question].answer;
}

ChoiceScore score_of(const ChoiceSet& set, std::span<const EncodedQuestion> encoded,
                     std::span<const ChoiceResult> results) {
  ChoiceScore s;
  for (size_t i = 0; i < results.size(); ++i) {
    const int64_t answer = set.questions[i].answer;
    s.plain.passed += is_right(set, i, results[i]);
    s.by_length.passed +=
        set.form == ChoiceForm::last_word ? results[i].greedy : results[i].best_by_length == answer;
    s.mean_log_likelihood += results[i].log_likelihood[size_t(answer)];
    s.tokens += int64_t(encoded[i].prompt.size());
    for (const auto& c : encoded[i].choices) s.tokens += int64_t(c.size()) - 1;
  }
  s.plain.total = s.by_length.total = int64_t(results.size());
  s.mean_log_likelihood /= double(std::max<size_t>(1, results.size()));
  return s;
}

ChoiceChanges changes_of(const ChoiceSet& set, std::span<const ChoiceResult> before,
                         std::span<const ChoiceResult> after) {
  ChoiceChanges c;
  for (size_t i = 0; i < after.size(); ++i) {
    const bool was = is_right(set, i, before[i]), is = is_right(set, i, after[i]);
    c.lost += was && !is;
    c.won += is && !was;
    c.changed += set.form == ChoiceForm::last_word ? was != is : before[i].best != after[i].best;
  }
  return c;
}

}  // namespace nibble
