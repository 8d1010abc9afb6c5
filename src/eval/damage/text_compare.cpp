// SPDX-License-Identifier: MIT
#include "eval/damage/text_compare.h"

#include <algorithm>
#include <cmath>
#include <mutex>

#include "core/error.h"
#include "core/progress.h"
#include "core/threads/share_out.h"
#include "eval/damage/text_passes.h"

namespace nibble {
namespace {

void keep_largest(std::vector<MovedToken>& moved, MovedToken m, int64_t most) {
  if (most <= 0 || !(m.divergence > 0)) return;
  const auto at =
      std::ranges::upper_bound(moved, m.divergence, std::greater<>(), &MovedToken::divergence);
  if (at == moved.end() && int64_t(moved.size()) == most) return;
  moved.insert(at, m);
  if (int64_t(moved.size()) > most) moved.pop_back();
}

}  // namespace

TextComparison compare_on_text(TextReaders base, TextReaders model, const TextWindows& windows,
                               int64_t most) {
  const int64_t V = model[0].model.config.V;
  if (base[0].model.config.V != V) {
    throw_usage("the two models have vocabularies of {} and {} tokens: they cannot be compared",
                base[0].model.config.V, V);
  }
  TextComparison out;
  WindowSums base_sums(windows), sums(windows), changes(windows), divergences(windows);
  Progress progress("divergence on " + windows.name, windows.ids.size(), "windows");
  std::mutex one_tells;
  // By reader, so that what is equal stays in the order of the text.
  std::vector<std::vector<MovedToken>> moved(model.size());
  share_out(int64_t(windows.ids.size()), model.size(), [&](size_t r, int64_t first, int64_t end) {
    TextPasses base_passes(base[r], windows, first, end), passes(model[r], windows, first, end);
    for (int64_t told = 0; passes.next(); told = passes.done()) {
      base_passes.next();
      int64_t agreed = 0;
      passes.each_piece([&](int64_t begin, std::span<const PredictedToken> predicted) {
        const std::vector<RowFigures> before = base_passes.figures(begin, predicted),
                                      now = passes.figures(begin, predicted);
        const std::vector<double> apart = passes.divergence_from(base_passes);
        for (size_t i = 0; i < predicted.size(); ++i) {
          const PredictedToken& p = predicted[i];
          base_sums.add(p.window, before[i].loss);
          sums.add(p.window, now[i].loss);
          changes.add(p.window, now[i].loss - before[i].loss);
          divergences.add(p.window, apart[i]);
          agreed += before[i].top == now[i].top;
          keep_largest(moved[r],
                       {p.window, p.at, apart[i], before[i].loss, now[i].loss, before[i].top,
                        now[i].top, before[i].top_probability, now[i].top_probability},
                       most);
        }
      });
      const std::lock_guard lock(one_tells);
      out.agreed += agreed;
      progress.advance(uint64_t(passes.done() - told));
    }
  });
  for (const auto& some : moved) {
    for (const MovedToken& m : some) keep_largest(out.moved, m, most);
  }
  out.base = base_sums.result();
  out.model = sums.result();
  out.change = changes.result();
  out.divergence = divergences.result();
  out.agreement = double(out.agreed) / double(out.model.tokens);
  return out;
}

}  // namespace nibble
