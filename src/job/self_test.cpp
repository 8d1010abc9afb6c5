// SPDX-License-Identifier: MIT
#include "job/self_test.h"

#include <algorithm>
#include <cmath>

#include "core/log.h"
#include "generate/reply_report.h"
#include "tokenizer/chat_template.h"

namespace nibble {
namespace {

// Embedding and norms may be rounded to the file's type (fp16 or bf16): 2^-8 of a logit at most,
// and a loss is a difference of logits of a few units.
constexpr double kLossTolerance = 0.05;

double inference_loss(Engine& engine, const PackedBatch& b, int64_t V) {
  double sum = 0;
  size_t out = 0;
  for (const Sequence& s : b.sequences) {
    engine.reset();
    const std::span<const int32_t> ids(b.ids.data() + s.q_begin, size_t(s.q_len));
    const std::vector<float> logits = engine.extend_all(ids);
    for (; out < b.out_rows.size() && b.out_rows[out] < s.q_begin + s.q_len; ++out) {
      const float* z = logits.data() + int64_t(b.out_rows[out] - s.q_begin) * V;
      const double top = double(*std::max_element(z, z + V));
      double exps = 0;
      for (int64_t v = 0; v < V; ++v) exps += std::exp(double(z[v]) - top);
      sum += std::log(exps) + top - double(z[b.targets[out]]);
    }
  }
  return sum / double(b.out_rows.size());
}

}  // namespace

SelfTestRecord self_test(const SelfTestSettings& settings, const RuntimeOptions& exported,
                         const SelfTestReference& reference, const ChatTemplate& style,
                         JobEvents& events) {
  SelfTestRecord record;
  const auto failed = [&](std::string why) {
    events.text(fmt::format("self-test: failed, {}\n", why));
    record.problem = std::move(why);
    return record;
  };
  const Runtime rt = open_runtime(exported, TokenizerNeed::optional);
  CacheOptions cache;
  cache.context = std::min(int64_t(reference.batch.ids.size()) + 512 + settings.max_tokens,
                           rt.model.config.max_positions);
  Engine engine(*rt.backend, rt.model, rt.engine_options(cache));
  const double loss = inference_loss(engine, reference.batch, rt.model.config.V);
  if (!std::isfinite(loss)) {
    return failed("the loss of the first sample is not finite: the weights are broken");
  }
  record.loss_from_file = loss;
  if (reference.loss) {
    record.loss_in_training = *reference.loss;
    events.text(fmt::format(
        "self-test: loss of the first sample {:.4f} in training, {:.4f} from the file\n",
        *reference.loss, loss));
    const double difference = std::abs(loss - *reference.loss);
    if (difference > kLossTolerance * (1 + std::abs(*reference.loss))) {
      return failed("they differ, the export is not sound");
    }
  } else {
    events.text(fmt::format("self-test: loss of the first sample {:.4f} from the file\n", loss));
  }
  record.passed = true;
  if (!rt.tokenizer) return record;

  std::vector<int32_t> ids = reference.prompt_ids;
  if (!settings.prompt.empty()) {
    ids = encode_chat(*rt.tokenizer, std::vector<Message>{{Role::user, settings.prompt}}, {},
                      {style, GenerationPrompt::yes}, ContentTokens::plain);
  }
  engine.reset();
  GenerateOptions g;
  g.max_tokens = settings.max_tokens;
  g.stop_ids = rt.stop_ids();
  const GenerateResult result = generate(engine, ids, g);
  record.prompt = settings.prompt.empty() ? rt.tokenizer->decode(ids) : settings.prompt;
  record.reply = rt.tokenizer->decode(result.ids);
  const bool cut = result.reason == FinishReason::length;
  events.text(fmt::format(
      "self-test: prompt {}\nself-test: reply  {}{}\n", record.prompt, record.reply,
      cut ? fmt::format(" ... (cut after {} tokens; --test-max-tokens)", settings.max_tokens)
          : ""));
  record.passed = false;
  for (const std::string& text : settings.expect) {
    if (record.reply.find(text) != std::string::npos) continue;
    return failed(fmt::format("the reply lacks '{}'{}", text,
                              cut ? ": it was cut, more --test-max-tokens may show it" : ""));
  }
  if (report_finish(result.reason) != ExitCode::ok) {
    return failed(fmt::format("the reply ended with {}", finish_reason_name(result.reason)));
  }
  record.passed = true;
  return record;
}

}  // namespace nibble
