// SPDX-License-Identifier: MIT
#include "eval/kv_matrix.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/error.h"
#include "generate/generator.h"

namespace nibble {
namespace {

enum class Cache { replay, per_turn, persistent };

struct Kind {
  std::string name;
  Cache cache;
  int64_t chunk;  // 0: whole
};

struct Step {
  int32_t id;
  std::vector<float> logits;
};
using Steps = std::vector<Step>;  // both replies, one after the other

std::vector<Kind> kinds_of(const KvMatrixOptions& o) {
  std::vector<Kind> kinds = {{"replay", Cache::replay, 0}};
  for (const auto& [prefix, cache] :
       {std::pair("", Cache::per_turn), std::pair("persistent-", Cache::persistent)}) {
    kinds.push_back({fmt::format("{}whole", prefix), cache, 0});
    for (int64_t c : o.chunks) {
      if (c < 1) throw_usage("a chunk of {} tokens was asked for, expected 1 or more", c);
      kinds.push_back({fmt::format("{}chunk-{}", prefix, c), cache, c});
    }
    kinds.push_back({fmt::format("{}token", prefix), cache, 1});
  }
  return kinds;
}

class Matrix {
 public:
  Matrix(Backend& backend, const Model& model, std::span<const int32_t> first,
         std::span<const int32_t> second, const KvMatrixOptions& o)
      : first_(first), second_(second), o_(o), engine_(backend, model, engine_options()) {}

  Steps run(const Kind& kind) {
    Steps steps;
    std::vector<int32_t> conversation(first_.begin(), first_.end());
    engine_.set_chunk(kind.chunk);
    engine_.reset();
    reply(kind, conversation, steps);
    conversation.insert(conversation.end(), second_.begin(), second_.end());
    if (kind.cache == Cache::per_turn) engine_.reset();
    reply(kind, conversation, steps);
    return steps;
  }

  // The product's own generation loop, which the steps above spell out.
  bool generator_agrees(const Steps& reference) {
    GenerateOptions g;
    g.max_tokens = o_.max_tokens;
    g.sample = o_.sample;
    g.check_collapse = false;
    engine_.set_chunk(0);
    engine_.reset();
    const GenerateResult r = generate(engine_, first_, g);
    for (size_t i = 0; i < size_t(o_.max_tokens); ++i) {
      if (i >= r.ids.size() || r.ids[i] != reference[i].id) return false;
    }
    return true;
  }

 private:
  EngineOptions engine_options() const {
    if (o_.max_tokens < 1 || o_.iterations < 1) {
      throw_usage("the KV matrix needs at least 1 token and 1 iteration, found {} and {}",
                  o_.max_tokens, o_.iterations);
    }
    EngineOptions e = o_.engine;
    e.context = int64_t(first_.size() + second_.size()) + 2 * o_.max_tokens;
    return e;
  }

  std::span<const float> feed(const Kind& kind, const std::vector<int32_t>& conversation) {
    if (kind.cache == Cache::replay) engine_.reset();
    return engine_.extend(std::span(conversation).subspan(size_t(engine_.length())));
  }

  void reply(const Kind& kind, std::vector<int32_t>& conversation, Steps& steps) {
    Sampler sampler(o_.sample);
    std::span<const float> logits = feed(kind, conversation);
    for (int64_t i = 0; i < o_.max_tokens; ++i) {
      if (i > 0) logits = feed(kind, conversation);
      const int32_t id = sampler.next(logits, conversation);
      steps.push_back({id, {logits.begin(), logits.end()}});
      conversation.push_back(std::max(id, 0));  // without a choice the logits tell
    }
  }

  std::span<const int32_t> first_, second_;
  const KvMatrixOptions& o_;
  Engine engine_;
};

double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double d = std::fabs(double(a[i]) - double(b[i]));
    if (!(d <= largest)) largest = std::isfinite(d) ? d : std::numeric_limits<double>::infinity();
  }
  return largest;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

void judge(KvCase& c, const Steps& run, const Steps& reference, const KvMatrixOptions& o) {
  bool bits = true;
  for (size_t i = 0; i < reference.size(); ++i) {
    c.logit_diff = std::max(c.logit_diff, largest_difference(run[i].logits, reference[i].logits));
    bits = bits && same_bits(run[i].logits, reference[i].logits);
    if (run[i].id != reference[i].id) {
      // From here on the two runs see different texts.
      c.message = fmt::format("turn {}, token {}: id {} instead of {}, logits differ by {:.3g}",
                              i / size_t(o.max_tokens) + 1, i % size_t(o.max_tokens) + 1, run[i].id,
                              reference[i].id, c.logit_diff);
      return;
    }
  }
  c.passed = o.max_logit_diff > 0 ? c.logit_diff <= o.max_logit_diff : bits;
  c.message =
      fmt::format("{} ids equal, logits {}", reference.size(),
                  bits ? "equal bit for bit" : fmt::format("differ by {:.3g}", c.logit_diff));
}

}  // namespace

bool KvMatrix::passed() const {
  return !cases.empty() &&
         std::all_of(cases.begin(), cases.end(), [](const KvCase& c) { return c.passed; });
}

double KvMatrix::logit_diff() const {
  double largest = 0;
  for (const KvCase& c : cases) largest = std::max(largest, c.logit_diff);
  return largest;
}

KvMatrix run_kv_matrix(Backend& backend, const Model& model, std::span<const int32_t> first,
                       std::span<const int32_t> second, const KvMatrixOptions& o,
                       const std::function<void(const KvCase&)>& on_case) {
  if (first.empty() || second.empty()) throw_usage("the KV matrix needs two turns with tokens");
  const std::vector<Kind> kinds = kinds_of(o);
  Matrix matrix(backend, model, first, second, o);
  const Steps reference = matrix.run(kinds.front());
  KvMatrix result;
  result.kinds = int64_t(kinds.size()) + 1;
  result.iterations = o.iterations;
  const auto finish = [&](KvCase c) {
    if (on_case) on_case(c);
    result.cases.push_back(std::move(c));
  };
  for (int64_t i = 1; i <= o.iterations; ++i) {
    for (const Kind& kind : kinds) {
      KvCase c{kind.name, i, false, 0, {}};
      judge(c, matrix.run(kind), reference, o);
      finish(std::move(c));
    }
    KvCase c{"generator", i, matrix.generator_agrees(reference), 0, {}};
    c.message = c.passed ? fmt::format("{} ids equal", o.max_tokens) : "other ids than replay";
    finish(std::move(c));
  }
  return result;
}

}  // namespace nibble
