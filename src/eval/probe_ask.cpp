// SPDX-License-Identifier: MIT
#include "eval/probe_ask.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "core/error.h"

namespace nibble {
namespace {

constexpr int64_t kMostSequences = 64;

std::vector<int32_t> encode(const Tokenizer& tokenizer, std::span<const Message> messages,
                            const ChatTemplate& style) {
  return encode_chat(tokenizer, messages, {}, {style, GenerationPrompt::yes}, ContentTokens::plain);
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
    const int64_t reply = o.max_tokens.value_or(p->max_tokens);
    const auto prompt = int64_t(encode(tokenizer, p->messages, o.style).size()) +
                        reply * int64_t(p->own_turns.size());
    if (prompt >= c.max_positions) {
      throw_usage("probe '{}' has {} tokens, but the model knows positions up to {}", p->id, prompt,
                  c.max_positions);
    }
    // The last token of a reply is never fed.
    shape.context = std::max(shape.context, prompt + reply);
  }
  shape.context = std::min(shape.context, c.max_positions);
  const size_t each = KvCache::bytes(c, shape.context, cache);
  const auto fit = int64_t(std::max<size_t>(1, cache_bytes / std::max<size_t>(1, each)));
  shape.sequences = std::clamp<int64_t>(int64_t(probes.size()), 1, std::min(kMostSequences, fit));
  return shape;
}

std::vector<ProbeResult> ask_probes(Engines engines, const Tokenizer& tokenizer,
                                    std::span<const Probe* const> probes, const ProbeAskOptions& o,
                                    const std::function<bool(int64_t)>& on_reply) {
  std::vector<ProbeResult> results;
  int64_t replies_wanted = 0, replies_had = 0;
  for (const Probe* p : probes) {
    results.push_back({p, {}, {}, p->messages});
    replies_wanted += int64_t(p->own_turns.size()) + 1;
  }
  // Each round brings every conversation that is not over yet to its next reply.
  std::vector<size_t> open(probes.size());
  std::iota(open.begin(), open.end(), size_t(0));
  for (size_t round = 0; !open.empty(); ++round) {
    std::vector<BatchPrompt> prompts;
    for (const size_t i : open) {
      const Probe& p = *probes[i];
      const std::span all(results[i].messages);
      const bool last = round == p.own_turns.size();
      // A reply that goes in circles has failed already where that is against the rules.
      prompts.push_back({encode(tokenizer, last ? all : all.first(p.own_turns[round].at), o.style),
                         o.max_tokens.value_or(p.max_tokens),
                         forbids_repetition(rules_of(p, o.rules))});
    }
    std::vector<BatchReply> replies =
        generate_batch(engines, prompts, {o.stop_ids, o.sample}, [&](int64_t done) {
          return !on_reply ||
                 on_reply((replies_had + done) * int64_t(probes.size()) / replies_wanted);
        });
    replies_had += int64_t(replies.size());
    std::vector<size_t> still_open;
    for (size_t k = 0; k < open.size(); ++k) {
      ProbeResult& r = results[open[k]];
      const Probe& p = *r.probe;
      ProbeReply reply{tokenizer.decode(replies[k].ids, DecodeSpecial::skip),
                       std::move(replies[k].ids), replies[k].reason};
      if (round == p.own_turns.size()) {
        if (r.problem.empty()) r.problem = reply_problem(rules_of(p, o.rules), reply).value_or("");
        r.reply = std::move(reply);
        continue;
      }
      const OwnTurn& turn = p.own_turns[round];
      const bool judged = o.rules == WhichRules::target && r.problem.empty();
      if (const auto why = judged ? reply_problem(turn.rules, reply) : std::nullopt) {
        r.problem = fmt::format("in turn {}: {}", turn.at + 1, *why);
      }
      r.messages[turn.at].content = std::move(reply.text);
      still_open.push_back(open[k]);
    }
    open = std::move(still_open);
  }
  return results;
}

}  // namespace nibble
