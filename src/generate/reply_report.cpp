// SPDX-License-Identifier: MIT
#include "generate/reply_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/log.h"

namespace nibble {

std::string timing_line(const GenerateTiming& t) {
  const auto rate = [](int64_t n, double s) { return s > 0 ? double(n) / s : 0.0; };
  // The first token comes out of the prefill; the decode time covers the others.
  const int64_t decoded = t.generated_tokens > 0 ? t.generated_tokens - 1 : 0;
  return fmt::format(
      "[time] prefill: {:.1f} ms ({} tokens, {:.1f} tok/s), decode: {:.1f} ms ({} tokens, {:.1f} "
      "tok/s)",
      t.prefill_s * 1e3, t.prompt_tokens, rate(t.prompt_tokens, t.prefill_s), t.decode_s * 1e3,
      decoded, rate(decoded, t.decode_s));
}

std::string ids_text(const std::vector<int32_t>& ids) {
  return fmt::format("{}", fmt::join(ids, ","));
}

void report_cut(FinishReason reason, int64_t max_tokens, int64_t context, int64_t most) {
  if (reason == FinishReason::length) {
    log_info("the reply was cut after {} tokens: --max-tokens {} (-n) would let it go on",
             max_tokens, 2 * max_tokens);
  } else if (reason == FinishReason::context_full && context < most) {
    log_info("--context {} would let it go on; the model knows {} positions",
             std::min(2 * context, most), most);
  } else if (reason == FinishReason::context_full) {
    log_info("the model knows no more than {} positions", most);
  }
}

ExitCode report_finish(FinishReason reason) {
  switch (reason) {
    case FinishReason::stop:
    case FinishReason::length:
    case FinishReason::cancelled: return ExitCode::ok;
    case FinishReason::context_full:
      log_warning("the reply ends here because the context is full; a larger --context holds more");
      return ExitCode::ok;
    case FinishReason::timeout:
      log_warning("the reply ends here because --timeout-ms has passed");
      return ExitCode::ok;
    case FinishReason::repetition:
      log_warning("the reply ends here because it only repeats itself (--stop-on-repetition)");
      return ExitCode::ok;
    case FinishReason::collapse:
      log_warning(
          "the model answers token 0 again and again: its weights are broken; `nibble check "
          "--finite` and "
          "`nibble inspect` may tell where");
      return ExitCode::check_failed;
    case FinishReason::not_finite:
      log_warning(
          "the model's logits are not finite (NaN or infinity): `nibble check --finite` tells "
          "where they "
          "come from");
      return ExitCode::check_failed;
  }
  return ExitCode::internal;
}

}  // namespace nibble
