// SPDX-License-Identifier: MIT
// check --finite and --replies: values that are not finite, replies that say nothing.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/half.h"
#include "core/threads/share_out.h"
#include "eval/check_parts.h"
#include "formats/weights.h"
#include "generate/generator.h"
#include "generate/health.h"
#include "quant/codec.h"

namespace nibble {
namespace {

// Quantised real weights stay within a factor of about a hundred of their median scale; a damaged
// byte is off by powers of two in the thousands.
constexpr double kOutlier = 4096;

std::vector<float> read_scales(const TensorSource& source, const TensorInfo& t) {
  std::vector<std::byte> raw(t.n_bytes);
  source.read(t, 0, raw);
  std::vector<float> out(size_t(t.numel()));
  const size_t e = dtype_bytes(t.dtype);
  for (size_t i = 0; i < out.size(); ++i) {
    const std::byte* p = raw.data() + i * e;
    switch (t.dtype) {
      case DType::f32: out[i] = *reinterpret_cast<const float*>(p); break;
      case DType::f16: out[i] = to_float(*reinterpret_cast<const f16_t*>(p)); break;
      default: out[i] = e4m3_value(uint8_t(*p));
    }
  }
  return out;
}

GenerateResult greedy_or_drawn(const CheckOptions& o, const Runtime& r, const CheckPrompt& prompt,
                               const SampleOptions& sample) {
  const int64_t tokens = o.max_tokens.value_or(32);
  Engine engine(*r.backend, r.model,
                check_engine_options(o, r, int64_t(prompt.ids.size()) + tokens));
  GenerateOptions g;
  g.max_tokens = tokens;
  g.stop_ids = r.stop_ids();
  g.sample = sample;
  g.replay = !o.cache.use_kvc;
  return generate(engine, prompt.ids, g);
}

// "" when the reply is fine.
std::string reply_problem(const Runtime& r, const GenerateResult& result) {
  if (result.reason == FinishReason::not_finite) return "logits that are not finite";
  if (result.ids.empty() && result.reason != FinishReason::stop) return "no tokens at all";
  const std::string text = r.tokenizer ? reply_text(r, result.ids) : std::string();
  return collapse_reason(result.ids, text).value_or("");
}

}  // namespace

std::vector<std::string> find_bad_scales(const TensorSource& source) {
  std::vector<std::string> bad;
  const WeightIndex index(source);
  for (const LogicalTensor& t : index.tensors()) {
    if (!t.packed()) continue;
    const std::vector<float> scales = read_scales(source, *t.scales);
    std::vector<float> sorted = scales;
    const auto middle = sorted.begin() + std::ptrdiff_t(sorted.size() / 2);
    std::replace_if(
        sorted.begin(), sorted.end(), [](float v) { return !(v >= 0); }, 0.0f);
    std::nth_element(sorted.begin(), middle, sorted.end());
    const double median = sorted.empty() ? 0 : double(*middle);
    int64_t nan = 0, negative = 0, outliers = 0;
    size_t first = 0;
    for (size_t i = 0; i < scales.size(); ++i) {
      const float s = scales[i];
      const bool is_nan = !std::isfinite(s), is_negative = std::signbit(s) && !is_nan;
      const bool is_outlier = median > 0 && double(s) > kOutlier * median;
      if (!is_nan && !is_negative && !is_outlier) continue;
      if (nan + negative + outliers == 0) first = i;
      nan += is_nan;
      negative += is_negative;
      outliers += is_outlier && !is_nan;
    }
    if (nan + negative + outliers == 0) continue;
    const size_t per_row = size_t(t.cols / 16);
    bad.push_back(fmt::format(
        "{}: {} of {} scales are NaN, {} negative, {} over {:g} times the median; the first at row "
        "{}, block {}",
        t.scales->name, nan, scales.size(), negative, outliers, kOutlier, first / per_row,
        first % per_row));
  }
  return bad;
}

EngineOptions check_engine_options(const CheckOptions& o, const Runtime& r, int64_t needed) {
  EngineOptions e = r.engine_options(o.cache);
  if (!o.cache.context) e.context = needed;
  return e;
}

void check_finite(const CheckOptions& o, const Runtime& r, const std::vector<CheckPrompt>& prompts,
                  CheckReport& report) {
  const WeightHealth weights = check_weights(*r.backend, r.model);
  for (const BadValues& b : weights.bad) report.note(fmt::format("  {}: {}", b.place, b.problem));
  nlohmann::json details = {{"weight_tensors", weights.tensors},
                            {"largest_weight", json_number(double(weights.largest))},
                            {"largest_weight_in", weights.largest_name}};
  if (!weights.bad.empty()) {
    details["place"] = weights.bad.front().place;
    report.add(
        "finite", false,
        fmt::format("{} of {} weights are not finite; the first is {}: {}", weights.bad.size(),
                    weights.tensors, weights.bad.front().place, weights.bad.front().problem),
        details);
    return;
  }
  const auto& ids = prompts.front().ids;
  const ActivationHealth acts =
      check_activations(*r.backend, r.model, check_engine_options(o, r, int64_t(ids.size())), ids);
  details["intermediates"] = acts.tensors;
  details["largest_intermediate"] = json_number(double(acts.largest));
  details["largest_intermediate_in"] = acts.largest_name;
  if (acts.first_bad) {
    details["place"] = acts.first_bad->place;
    report.add("finite", false,
               fmt::format("the first intermediate that is not finite is {}: {}",
                           acts.first_bad->place, acts.first_bad->problem),
               details);
    return;
  }
  const GenerateResult reply = greedy_or_drawn(o, r, prompts.front(), {});
  details["reply_ids"] = reply.ids;
  if (const std::string problem = reply_problem(r, reply); !problem.empty()) {
    details["collapse"] = problem;
    report.add("finite", false, "every value is finite, but the greedy reply collapsed: " + problem,
               details);
    return;
  }
  report.add(
      "finite", true,
      fmt::format("{} weights, {} intermediates, largest {:.4g} in {}; greedy reply of {} "
                  "tokens is sound",
                  weights.tensors, acts.tensors, acts.largest, acts.largest_name, reply.ids.size()),
      details);
}

void check_replies(const CheckOptions& o, Replicas replicas,
                   const std::vector<CheckPrompt>& prompts, CheckReport& report) {
  const Runtime& r = replicas.front();
  std::vector<GenerateResult> results(prompts.size());
  share_out(int64_t(prompts.size()), replicas.size(), [&](size_t who, int64_t begin, int64_t end) {
    for (auto i = size_t(begin); i < size_t(end); ++i)
      results[i] = greedy_or_drawn(o, replicas[who], prompts[i], o.sample);
  });
  nlohmann::json replies = nlohmann::json::array();
  std::string first_problem;
  for (size_t i = 0; i < prompts.size(); ++i) {
    const CheckPrompt& p = prompts[i];
    const GenerateResult& result = results[i];
    const std::string text = reply_text(r, result.ids), problem = reply_problem(r, result);
    report.note(fmt::format("Prompt: {}\nReply: {}\n---", p.text, text));
    replies.push_back({{"prompt", p.text},
                       {"reply", text},
                       {"ids", result.ids},
                       {"finish", finish_reason_name(result.reason)},
                       {"problem", problem}});
    if (first_problem.empty() && !problem.empty()) first_problem = p.text + ": " + problem;
  }
  report.add("replies", first_problem.empty(),
             first_problem.empty() ? fmt::format("{} replies, none collapsed", prompts.size())
                                   : first_problem,
             {{"replies", std::move(replies)}});
}

}  // namespace nibble
