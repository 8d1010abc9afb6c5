// SPDX-License-Identifier: MIT
#include "apps/options/legacy_programs.h"

#include <algorithm>
#include <cstdlib>

#include "apps/options/legacy_flags.h"
#include "core/log.h"

namespace nibble {
namespace {

// clang-format off
constexpr std::string_view kRunner =
    " --model-dir --device --dtype --quant --weight --prompt --max-tokens --temp --top-p --topp "
    "--seed --check-logits --timing --ignore-eos --stop-here --ifInteractive "
    "--interactive-reset-history --timeout-ms --KVCacheOut --kv-cache-out --kvcacheout "
    "--empty-cache-each-turn --TokenByTokenOrPromptByPrompt --tokenbytokenorpromptbyprompt "
    "--kvc-input-mode --NoKVComputeMode --no-kvc-mode --nokvcomputemode --use-kvc --kvc-backend "
    "--turns --followup-prompt --tee-object-chat-session --tee-object-chat-session-json "
    "--q4-kernel --q4-cache --HistoryMode --system --path --debug-kvc --cuda-mem-report --fp4-ab "
    "--fp4-scale-check --fp4-ab-max-calls --fp4-ab-explosion-rel --prompt-from-chat-session ";
constexpr std::string_view kMain =
    " --model-dir --config --tokenizer --weight --device --epochs --steps-per-epoch --batch-size "
    "--in-features --out-features --max-layers --synthetic --use-kvc --seq-len --lr --loss-mode "
    "--loss --master-dtype --use-packed-optimizer --optimizer-state-mode --grad-ckpt-chunk "
    "--optimizer-step-chunk-rows --offload-mv-to-cpu --offload-w-to-cpu --offload-grad-to-cpu "
    "--step-flush-each-param --profile-train-step-vram --train-step-vram-report --checkpoint-dir "
    "--save-every-steps --resume --strict-load --restrict-load ";
constexpr std::string_view kOneStep =
    " --train-data --vram-report --sample-index --seq-len --device --loss --step-chunk-rows --lr "
    "--offload-mv-to-cpu --offload-w-to-cpu --offload-grad-to-cpu ";
// The last three were ignored there in silence.
constexpr std::string_view kWhoAmI =
    " --model-dir --input-dat --output-dat --train-data --device --loss --steps --lr "
    "--train-last-layers --seq-len --step-chunk-rows --optimizer-state-mode --test-max-tokens "
    "--compute-dtype --sample-mode --seed --offload-mv-to-cpu --offload-w-to-cpu "
    "--offload-grad-to-cpu --grad-clip --compact-each-step --log-every --master-dtype "
    "--grad-ckpt-chunk --use-packed-optimizer ";
constexpr std::string_view kFullStep =
    " --model-dir --device --dtype --quant --weight --batch-size --seq-len --lr --beta1 --beta2 "
    "--eps --weight-decay --grad-ckpt-chunk --step-chunk-rows --offload-mv-to-cpu "
    "--offload-w-to-cpu --offload-grad-to-cpu --materialize-from-packed --step-flush-each-param "
    "--compute-grad-norm --dispose-session-after-load --compact-after-model-load "
    "--print-tensor-byte-report --stop-after --profile-vram --vram-report --seed ";
constexpr std::string_view kCheck =
    " --mode --model-dir --weight --device --dtype --quant --use-kvc --kvc-input-mode --max-tokens "
    "--temp --top-p --seed --prompt ";
constexpr std::string_view kNeedle = " --model-dir --weight --target-tokens --chunk-size --secret ";
// clang-format on

using Defaults = std::vector<std::pair<std::string, std::string>>;
const Defaults kScenario = {
    {"script", "predecessor"}, {"max-tokens", "20"}, {"temp", "0"}, {"seed", "123"}};
const Defaults kOneTurn = {{"max-tokens", "20"}, {"temp", "0"}, {"seed", "123"}};
const Defaults kShort = {{"prompt", "hi"}, {"max-tokens", "4"}, {"temp", "0"}, {"seed", "123"}};
const char* const kUfo = "Write one short sentence about UFO and you.";

Defaults with(Defaults base, const Defaults& more) {
  for (const auto& m : more) {
    std::erase_if(base, [&](const auto& b) { return b.first == m.first; });
    base.push_back(m);
  }
  return base;
}

std::vector<LegacyProgram> make_programs() {
  const Defaults logits = {{"check-logits", "true"}}, ufo = {{"prompt", kUfo}};
  return {
      {"", "smoke", "", {}, kMain},
      {"Train.OneStep", "profile", "", {{"seq-len", "8"}, {"lr", "1e-5"}}, kOneStep},
      {"Train.WhoAmI.AndExportDat",
       "train",
       "",
       {{"steps", "6"},
        {"lr", "1e-4"},
        {"seq-len", "96"},
        {"grad-clip", "0.5"},
        {"seed", "20260226"},
        {"log-every", "10"},
        {"test-prompt", "你是誰"},
        {"test-expect", "我是"}},
       kWhoAmI},
      {"Generate.WhoAmINaturalData", "data", "whoami", {}, " --output --target --count --seed "},
      {"check-stageE",
       "check",
       "",
       {{"replies", "true"}, {"max-tokens", "32"}, {"temp", "0"}, {"seed", "123"}},
       kCheck},
      {"Tests.Parity", "check", "", {{"paths", "true"}}, ""},
      {"Tests.KVCStress", "check", "", {{"kv", "true"}, {"iterations", "3"}}, ""},
      {"run-training", "generate", "", with(kOneTurn, with(ufo, {{"max-tokens", "64"}})), kRunner},
      {"run", "generate", "", with(ufo, {{"max-tokens", "30"}, {"temp", "0"}}), ""},
      {"run-training2", "chat", "", with(kScenario, with(logits, ufo)), kRunner},
      {"run2", "chat", "", with(kScenario, with(ufo, {{"max-tokens", "64"}})), kRunner},
      {"run-training-fp", "chat", "", with(kScenario, with(logits, ufo)), kRunner},
      {"run-training-fp2",
       "chat",
       "",
       {{"prompt", "你是誰"}, {"max-tokens", "24"}, {"temp", "0"}, {"seed", "123"}},
       kRunner},
      {"run-training-fp2-single", "generate", "", with(kOneTurn, ufo), kRunner},
      {"run-training-fp2-safe", "generate", "", with(kOneTurn, {{"max-tokens", "4"}}), kRunner},
      {"run-training-fp2-noste", "generate", "", kShort, kRunner},
      {"compare-first-token-fp2",
       "trace",
       "",
       {{"top", "10"}, {"prompt", "hi"}},
       " --model-dir --weight --device ",
       "--prompt"},
      {"debug-fp2-parity", "check", "", {{"paths", "true"}, {"prompt", "hi"}}, ""},
      {"run-train-step-full-nvfp4",
       "profile",
       "",
       {{"batch-size", "1"}, {"seq-len", "8"}, {"lr", "5e-5"}, {"weight-decay", "0.01"}},
       kFullStep},
      {"run-long-context", "check", "", {{"needle", "true"}, {"needle-mode", "rebuild"}}, kNeedle},
      {"run-long-context2", "check", "", {{"needle", "true"}}, kNeedle},
      {"export_qwen3", "convert", "", {}, " --model --dtype --quant --out "},
      {"run-script-with-guard",
       "guard",
       "",
       {{"gpu-limit-gb", "108"}},
       " --gpu-limit-gb -l --gpu-over-secs -o --gpu-poll-secs -p ",
       {},
       true},
  };
}

bool took(const LegacyProgram& p, std::string_view flag) {
  const std::string word = " " + std::string(flag) + " ";
  return p.flags.find(word) != std::string_view::npos;
}

std::string stem_of(std::string_view typed) {
  std::string name(typed.substr(typed.find_last_of('/') + 1));
  for (const std::string_view ending : {".fsx", ".py", ".dll"}) {
    const size_t n = ending.size();
    if (name.size() > n && same_word(std::string_view(name).substr(name.size() - n), ending)) {
      name.resize(name.size() - n);
    }
  }
  return name;
}

// A value that is said differently now. An empty `now` drops flag and value.
struct LegacyValue {
  std::string_view flag, then, now, why;
};
constexpr std::string_view kHalfMaster =
    "a master of 16 bits with 5 of exponent loses small weights; fp32 holds all of them";
constexpr LegacyValue kValues[] = {
    {"--master-dtype", "float16", "fp32", kHalfMaster},
    {"--master-dtype", "fp16", "fp32", kHalfMaster},
    {"--master-dtype", "half", "fp32", kHalfMaster},
    {"--prompt-from-chat-session", "false", "", "--replay FILE asks for it"},
    {"--stop-after", "session_disposed", "model_loaded", "nothing is loaded twice"},
    {"--stop-after", "post_load_compacted", "model_loaded", "there is nothing to compact"},
    {"--stop-after", "weights_materialized", "state_initialized", "masters are never packed"},
    {"--stop-after", "weights_materialization_skipped", "state_initialized",
     "masters are never packed"},
    {"--stop-after", "grad_offload_done", "backward_done", "gradients stay where they are"},
};

const LegacyValue* find_value(std::string_view flag, std::string_view text) {
  for (const LegacyValue& v : kValues) {
    if (v.flag == flag && same_word(v.then, text)) return &v;
  }
  return nullptr;
}

}  // namespace

std::span<const LegacyProgram> legacy_programs() {
  static const std::vector<LegacyProgram> all = make_programs();
  return all;
}

const LegacyProgram* find_legacy_program(std::string_view typed) {
  const std::string name = stem_of(typed);
  for (const LegacyProgram& p : legacy_programs()) {
    if (!p.name.empty() && same_word(p.name, name)) return &p;
  }
  return nullptr;
}

std::vector<std::string> words_of(const LegacyProgram& p, std::span<const std::string> args) {
  std::vector<std::string> words;
  if (!p.words.empty()) words.emplace_back(p.words);
  words.insert(words.end(), args.begin(), args.end());
  const bool bare = !args.empty() && !args.back().starts_with("-") &&
                    (args.size() == 1 || !args[args.size() - 2].starts_with("--"));
  if (!p.last_word.empty() && bare) words.insert(words.end() - 1, std::string(p.last_word));
  return words;
}

void apply_defaults(const LegacyProgram& p, Fields& fields, const ExplainUnknown& explain) {
  std::vector<ConfigKey> keys;
  for (const auto& [key, value] : p.defaults) {
    if (p.gpu_guard && std::getenv("GPU_LIMIT_GB")) continue;
    // Its own scenario is not what a script of one's own, or turns, continue with.
    const Field* replay = fields.find("--replay");
    if (replay && replay->given() && (key == "script" || key == "prompt")) continue;
    keys.push_back({key, {value}, false, std::string(p.name)});
  }
  apply_config_keys(fields, keys, explain);
}

std::optional<UnneededValue> find_unneeded(std::string_view flag, std::string_view command) {
  const LegacyFlag* legacy = find_legacy_flag(flag);
  const bool known = std::ranges::any_of(legacy_programs(), [&](const LegacyProgram& p) {
    return p.command == command && took(p, flag);
  });
  if (!legacy || !known) return std::nullopt;
  constexpr std::string_view kGone = "gone: ";
  std::string_view why = legacy->instead;
  if (why.starts_with(kGone)) why.remove_prefix(kGone.size());
  log_warning("{} is not needed by {}: {}", flag, command, why);
  return legacy->boolean ? UnneededValue::boolean : UnneededValue::text;
}

std::vector<std::string> with_values_of_today(std::span<const std::string> args,
                                              std::string_view command) {
  if (command == "guard") return {args.begin(), args.end()};  // the words are another program's
  std::vector<std::string> words;
  for (size_t i = 0; i < args.size(); ++i) {
    const size_t equals = args[i].find('=');
    const bool joined = args[i].starts_with("--") && equals != std::string::npos;
    const bool apart = !joined && i + 1 < args.size();
    const std::string flag = joined ? args[i].substr(0, equals) : args[i];
    const LegacyValue* v = joined  ? find_value(flag, args[i].substr(equals + 1))
                           : apart ? find_value(flag, args[i + 1])
                                   : nullptr;
    if (!v) {
      words.push_back(args[i]);
      continue;
    }
    if (v->now.empty()) {
      log_warning("{} {} is no longer needed: {}", flag, v->then, v->why);
    } else {
      log_warning("{} {} is taken as {}: {}", flag, v->then, v->now, v->why);
      words.insert(words.end(), {flag, std::string(v->now)});
    }
    if (apart) ++i;
  }
  return words;
}

}  // namespace nibble
