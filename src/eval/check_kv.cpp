// SPDX-License-Identifier: MIT
// check --kv and --needle: what the cache must not change, and what it must keep.
#include <nlohmann/json.hpp>

#include "core/file.h"
#include "core/progress.h"
#include "eval/check_parts.h"
#include "eval/kv_matrix.h"

namespace nibble {

void check_kv(const CheckOptions& o, const Runtime& r, const std::vector<CheckPrompt>& prompts,
              CheckReport& report) {
  KvMatrixOptions m;
  m.engine = r.engine_options(o.cache);
  if (r.device.kind == Device::cuda && o.runtime.compute == FloatChoice::automatic) {
    // With 16 bits a GPU's kernels are chosen by the number of rows; in fp32 a row's result does
    // not depend on the others, and the cache can be held against it bit for bit.
    m.engine.compute = DType::f32;
    if (o.cache.kv_dtype == FloatChoice::automatic) m.engine.cache = DType::f32;
    report.note("[kv] in fp32, where a GPU's results do not depend on the number of rows");
  }
  m.chunks.assign(o.kv_chunks.begin(), o.kv_chunks.end());
  m.iterations = o.iterations;
  m.max_tokens = o.max_tokens.value_or(4);
  m.sample = o.sample;
  m.max_logit_diff = o.max_logit_diff;
  nlohmann::json cases = nlohmann::json::array();
  const KvMatrix matrix = run_kv_matrix(
      *r.backend, r.model, prompts.front().ids, second_turn(o, r), m, [&](const KvCase& c) {
        report.note(
            fmt::format("[{}][{}] {}{}", c.name, c.iteration, c.passed ? "" : "FAIL ", c.message));
        cases.push_back({{"case", c.name},
                         {"iteration", c.iteration},
                         {"passed", c.passed},
                         {"logit_diff", json_number(c.logit_diff)},
                         {"message", c.message}});
      });
  int64_t failed = 0;
  for (const KvCase& c : matrix.cases) failed += !c.passed;
  report.add("kv", matrix.passed(),
             fmt::format("KV matrix: cases={} iterations={} total={} failed={}, logits differ by "
                         "{:.3g} at most (allowed {:g})",
                         matrix.kinds, matrix.iterations, matrix.cases.size(), failed,
                         matrix.logit_diff(), o.max_logit_diff),
             {{"cases", std::move(cases)}, {"logit_diff", json_number(matrix.logit_diff())}});
}

void check_needle(const CheckOptions& o, const Runtime& r, CheckReport& report) {
  const TurnEncoder encoder = make_turn_encoder(r);
  NeedleOptions n = o.needle_options;
  if (o.max_tokens) n.max_tokens = *o.max_tokens;
  // The last chunk may overshoot by a line, and the question comes on top.
  constexpr int64_t kSlack = 512;
  const int64_t needed = n.target_tokens + n.max_tokens + kSlack;
  const int64_t known = r.model.config.max_positions;
  if (needed > known && !o.cache.context) {
    const int64_t most = known - n.max_tokens - kSlack;
    // A probe that fails, not a mistake of the line: what is asked for the model cannot do.
    report.add(
        "needle", false,
        fmt::format(
            "--target-tokens {}: with {} for the reply (--max-tokens) and {} kept free for the "
            "question "
            "and the last line of filler that is {} tokens, and the model knows {} positions; {}",
            n.target_tokens, n.max_tokens, kSlack, needed, known,
            most > 0
                ? fmt::format("--target-tokens {} is the most, or --context says how many there "
                              "are",
                              most)
                : "--context says how many there are"),
        {{"secret", n.secret}, {"tokens", 0}});
    return;
  }
  Engine engine(*r.backend, r.model, check_engine_options(o, r, needed));
  EngineConversation conversation(engine, encoder, o.needle_mode);
  Haystack haystack(o.haystack.empty() ? std::string() : read_text_file(o.haystack));
  Progress progress("needle", uint64_t(n.target_tokens), "tokens");
  const NeedleResult result =
      run_needle(conversation, haystack, n, [&](int64_t t) { progress.update(uint64_t(t)); });
  report.note(fmt::format("Reply: {}", result.reply));
  report.add("needle", result.found,
             fmt::format("'{}' {} after {} tokens in {} chunks, cache {}", n.secret,
                         result.found ? "found" : "not found", result.tokens, result.chunks,
                         o.needle_mode == CacheUse::persistent ? "persistent" : "rebuilt"),
             {{"secret", n.secret},
              {"reply", result.reply},
              {"tokens", result.tokens},
              {"chunks", result.chunks}});
}

}  // namespace nibble
