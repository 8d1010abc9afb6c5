// SPDX-License-Identifier: MIT
#include "eval/probe_ask.h"

#include <algorithm>

#include "core/error.h"

namespace nibble {
namespace {

constexpr int64_t kMostSequences = 64;

std::vector<int32_t> encode(const Tokenizer& tokenizer, const Probe& p, const ChatTemplate& style) {
  return encode_chat(tokenizer, p.messages, {}, {style, GenerationPrompt::yes},
                     ContentTokens::plain);
}

bool forbids_repetition(const std::vector<ProbeRule>& rules) {
  return std::ranges::any_of(
      rules, [](const ProbeRule& r) { return r.kind == ProbeRule::Kind::no_repetition; });
}

}  // namespace

ProbeShape probe_shape(std::span<const Probe* const> probes, const Tokenizer& tokenizer,
                       const ProbeAskOptions& o, const Config& c, DType cache, size_t cache_bytes) {
  ProbeShape shape;
  for (const Probe* p : probes) {
    const auto prompt = int64_t(encode(tokenizer, *p, o.style).size());
    if (prompt >= c.max_positions) {
      throw_usage("probe '{}' has {} tokens, but the model knows positions up to {}", p->id, prompt,
                  c.max_positions);
    }
    // The last token of a reply is never fed.
    shape.context = std::max(shape.context, prompt + o.max_tokens.value_or(p->max_tokens));
  }
  shape.context = std::min(shape.context, c.max_positions);
  const size_t each = KvCache::bytes(c, shape.context, cache);
  const auto fit = int64_t(std::max<size_t>(1, cache_bytes / std::max<size_t>(1, each)));
  shape.sequences = std::clamp<int64_t>(int64_t(probes.size()), 1, std::min(kMostSequences, fit));
  return shape;
}

std::vector<ProbeResult> ask_probes(BatchEngine& engine, const Tokenizer& tokenizer,
                                    std::span<const Probe* const> probes, const ProbeAskOptions& o,
                                    const std::function<bool(int64_t)>& on_reply) {
  std::vector<BatchPrompt> prompts;
  for (const Probe* p : probes) {
    // A reply that goes in circles has failed already where that is against the rules.
    prompts.push_back({encode(tokenizer, *p, o.style), o.max_tokens.value_or(p->max_tokens),
                       forbids_repetition(rules_of(*p, o.rules))});
  }
  std::vector<BatchReply> replies =
      generate_batch(engine, prompts, {o.stop_ids, o.sample}, on_reply);
  std::vector<ProbeResult> results;
  for (size_t i = 0; i < replies.size(); ++i) {
    ProbeResult r;
    r.probe = probes[i];
    r.reply.text = tokenizer.decode(replies[i].ids, DecodeSpecial::skip);
    r.reply.ids = std::move(replies[i].ids);
    r.reply.reason = replies[i].reason;
    r.problem = reply_problem(rules_of(*r.probe, o.rules), r.reply).value_or("");
    results.push_back(std::move(r));
  }
  return results;
}

}  // namespace nibble
