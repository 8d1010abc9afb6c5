// SPDX-License-Identifier: MIT
#include "eval/damage/text_compare.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/progress.h"
#include "eval/damage/text_passes.h"

namespace nibble {
namespace {

// The figures of one predicted token.
struct ComparedToken {
  RowFigures base, model;
  double divergence = 0;
};

void keep_largest(std::vector<MovedToken>& moved, MovedToken m, int64_t most) {
  if (most <= 0 || !(m.divergence > 0)) return;
  const auto at =
      std::ranges::upper_bound(moved, m.divergence, std::greater<>(), &MovedToken::divergence);
  if (at == moved.end() && int64_t(moved.size()) == most) return;
  moved.insert(at, m);
  if (int64_t(moved.size()) > most) moved.pop_back();
}

double top_probability(const RowFigures& f) { return std::exp(double(f.largest) - f.log_sum); }

}  // namespace

RowFigures row_figures(std::span<const float> row, int32_t target) {
  RowFigures f;
  const auto top = std::max_element(row.begin(), row.end());
  f.top = int32_t(top - row.begin());
  f.largest = *top;
  double exps = 0;
  for (const float z : row) exps += std::exp(double(z) - double(f.largest));
  f.log_sum = std::log(exps) + double(f.largest);
  f.loss = f.log_sum - double(row[size_t(target)]);
  return f;
}

double row_divergence(std::span<const float> a, const RowFigures& of_a, std::span<const float> b,
                      const RowFigures& of_b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double za = double(a[i]);
    sum += std::exp(za - of_a.log_sum) * (za - double(b[i]));
  }
  const double divergence = sum - (of_a.log_sum - of_b.log_sum);
  // A divergence is never negative; what is below 0 is rounding. NaN stays what it is.
  return divergence < 0 ? 0 : divergence;
}

TextComparison compare_on_text(const TextReader& base, const TextReader& model,
                               const TextWindows& windows, int64_t most, ThreadPool& pool) {
  const int64_t V = model.model.config.V;
  if (base.model.config.V != V) {
    throw_usage("the two models have vocabularies of {} and {} tokens: they cannot be compared",
                base.model.config.V, V);
  }
  TextPasses base_passes(base, windows), passes(model, windows);
  TextComparison out;
  WindowSums base_sums(windows), sums(windows), changes(windows), divergences(windows);
  Progress progress("divergence on " + windows.name, windows.ids.size(), "windows");
  std::vector<ComparedToken> tokens;
  while (passes.next()) {
    base_passes.next();
    passes.each_piece([&](int64_t begin, std::span<const PredictedToken> predicted) {
      const auto count = int64_t(predicted.size());
      const std::vector<float> a = base_passes.logits(begin, count),
                               b = passes.logits(begin, count);
      tokens.assign(predicted.size(), {});
      pool.parallel_for(count, 1, [&](int64_t from, int64_t to, int) {
        for (int64_t i = from; i < to; ++i) {
          ComparedToken& t = tokens[size_t(i)];
          const std::span row_a(a.data() + i * V, size_t(V)), row_b(b.data() + i * V, size_t(V));
          t.base = row_figures(row_a, predicted[size_t(i)].id);
          t.model = row_figures(row_b, predicted[size_t(i)].id);
          t.divergence = row_divergence(row_a, t.base, row_b, t.model);
        }
      });
      for (size_t i = 0; i < predicted.size(); ++i) {
        const PredictedToken& p = predicted[i];
        const ComparedToken& t = tokens[i];
        base_sums.add(p.window, t.base.loss);
        sums.add(p.window, t.model.loss);
        changes.add(p.window, t.model.loss - t.base.loss);
        divergences.add(p.window, t.divergence);
        out.agreed += t.base.top == t.model.top;
        keep_largest(out.moved,
                     {p.window, p.at, t.divergence, t.base.loss, t.model.loss, t.base.top,
                      t.model.top, top_probability(t.base), top_probability(t.model)},
                     most);
      }
    });
    progress.update(uint64_t(passes.done()));
  }
  out.base = base_sums.result();
  out.model = sums.result();
  out.change = changes.result();
  out.divergence = divergences.result();
  out.agreement = double(out.agreed) / double(out.model.tokens);
  return out;
}

}  // namespace nibble
