// SPDX-License-Identifier: MIT
// check --text: the mean loss a token on texts, as the model would run here.
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "eval/check_parts.h"
#include "eval/text_loss.h"

namespace nibble {

void check_text(const CheckOptions& o, const Runtime& r, CheckReport& report) {
  EvaluateOptions e;
  e.compute = r.compute;
  e.activations = r.activations;
  e.cache = r.engine_options(o.cache).cache;
  const Tokenizer* tokenizer = r.tokenizer ? &*r.tokenizer : nullptr;
  for (const std::string& file : o.texts) {
    for (const TextWindows& w : read_text_windows(file, tokenizer, o.text_window, o.text_windows)) {
      const TextLoss loss = text_loss(*r.backend, r.model, w, e);
      report.add(
          "text", std::isfinite(loss.loss),
          fmt::format("{}: loss {:.5f} +- {:.5f} nats a token, perplexity {:.3f} ({} tokens, "
                      "{} windows, cache {})",
                      w.name, loss.loss, loss.standard_error, std::exp(loss.loss), loss.tokens,
                      loss.windows.size(), dtype_name(*e.cache)),
          {{"file", w.name},
           {"loss", json_number(loss.loss)},
           {"standard_error", json_number(loss.standard_error)},
           {"tokens", loss.tokens},
           {"windows", loss.windows}});
    }
  }
}

}  // namespace nibble
