// SPDX-License-Identifier: MIT
#include "apps/runtime.h"

#include <algorithm>

#include "backends/cpu/cpu_backend.h"
#include "core/log.h"
#include "core/memory_info.h"
#include "core/thread_pool.h"
#include "model/config.h"

namespace nibble {
namespace {

const std::vector<std::pair<std::string, FloatChoice>> kFloatNames = {
    {"auto", FloatChoice::automatic}, {"fp32", FloatChoice::fp32},
    {"bf16", FloatChoice::bf16},      {"fp16", FloatChoice::fp16},
    {"float32", FloatChoice::fp32},   {"bfloat16", FloatChoice::bf16},
    {"float16", FloatChoice::fp16},   {"half", FloatChoice::fp16},
    {"Float32", FloatChoice::fp32},   {"BFloat16", FloatChoice::bf16},
    {"Float16", FloatChoice::fp16}};
const std::vector<std::pair<std::string, RecipeChoice>> kRecipeNames = {
    {"auto", RecipeChoice::automatic},
    {"bf16", RecipeChoice::bf16},
    {"nvfp4", RecipeChoice::nvfp4}};

std::optional<Recipe> recipe_of(RecipeChoice choice) {
  if (choice == RecipeChoice::automatic) return std::nullopt;
  return choice == RecipeChoice::bf16 ? Recipe::bf16 : Recipe::nvfp4;
}

Activations choose_activations(ActivationsChoice choice, const Weights& w) {
  switch (choice) {
    case ActivationsChoice::automatic: return any_packed(w) ? Activations::int8 : Activations::none;
    case ActivationsChoice::bf16: return Activations::none;
    case ActivationsChoice::nvfp4: return Activations::nvfp4;
    case ActivationsChoice::int8:
      if (!any_packed(w)) {
        throw_usage(
            "--activations int8 needs NVFP4 weights, but this model's are dense; convert it with "
            "--quant "
            "nvfp4, load it with --recipe nvfp4, or leave --activations out");
      }
      return Activations::int8;
  }
  return Activations::none;
}

void check_quant_hint(QuantHint hint, const TensorSource& source) {
  if (hint == QuantHint::none) return;
  bool packed = false;
  for (const TensorInfo& t : source.tensors()) packed |= t.name.ends_with(".qdata");
  if ((hint == QuantHint::nvfp4) != packed) {
    throw_usage("--quant says the weights are {}, but {} holds {} weights",
                packed ? "not quantised" : "NVFP4", source.describe(),
                packed ? "NVFP4" : "unquantised");
  }
}

}  // namespace

DType float_type(FloatChoice choice, DType automatic) {
  switch (choice) {
    case FloatChoice::automatic: return automatic;
    case FloatChoice::fp32: return DType::f32;
    case FloatChoice::bf16: return DType::bf16;
    case FloatChoice::fp16: return DType::f16;
  }
  return automatic;
}

void add_device(Fields& f, Device& device, int32_t& threads) {
  f.add_choice(device,
               {.flag = "--device", .help = "Where to run; auto takes a GPU when there is one"},
               {{"auto", Device::automatic}, {"cpu", Device::cpu}, {"cuda", Device::cuda}});
  f.add(threads, {.flag = "--threads",
                  .help = "CPU threads; 0 takes every CPU this process may use",
                  .value = "N",
                  .least = 0,
                  .most = 1024});
}

void add_compute_type(Fields& f, FloatChoice& compute, const std::string& what_auto_is) {
  f.add_choice(compute,
               {.flag = "--compute-dtype",
                .help = "Type of the activations between layers; " + what_auto_is,
                .aliases = {"--dtype"}},
               kFloatNames);
}

void add_scale_rule(Fields& f, ScaleRule& rule, const std::string& help) {
  f.add_choice(rule, {.flag = "--scale-rule", .help = help},
               {{"four-over-six", ScaleRule::four_over_six},
                {"absmax", ScaleRule::absmax},
                {"search", ScaleRule::search},
                {"torchao", ScaleRule::torchao}});
}

bool any_packed(const Weights& w) {
  return std::any_of(w.block.begin(), w.block.end(), [](const BlockWeights& b) {
    return b.qkv.is_packed() || b.attn_out.is_packed() || b.gate_up.is_packed() ||
           b.down.is_packed();
  });
}

void RuntimeOptions::visit_fields(Fields& f) {
  model.visit_fields(f);
  f.section("Execution");
  add_device(f, device, threads);
  add_compute_type(f, compute, "auto is fp32 on a CPU");
  f.add_choice(activations,
               {.flag = "--activations",
                .help = "Inputs of linear layers: bf16 leaves them in the compute type, int8 and "
                        "nvfp4 quantise them; "
                        "auto is int8 for NVFP4 weights on a CPU"},
               {{"auto", ActivationsChoice::automatic},
                {"bf16", ActivationsChoice::bf16},
                {"int8", ActivationsChoice::int8},
                {"nvfp4", ActivationsChoice::nvfp4}});
  f.add_choice(recipe,
               {.flag = "--recipe", .help = "Linear layers: as stored (auto), dense, or NVFP4"},
               kRecipeNames);
  f.add_choice(head_recipe,
               {.flag = "--head-recipe", .help = "The head alone; auto follows --recipe"},
               kRecipeNames);
  add_scale_rule(f, scale_rule, "How dense weights are quantised under --recipe nvfp4");
  f.add_choice(quant,
               {.flag = "--quant",
                .help = "What the weight file is expected to be; another kind is an error"},
               {{"any", QuantHint::none},
                {"nvfp4", QuantHint::nvfp4},
                {"none", QuantHint::dense},
                {"fp4", QuantHint::nvfp4}});
}

void CacheOptions::visit_fields(Fields& f) {
  f.section("Context and cache");
  f.add(context,
        {.flag = "--context",
         .help = "Tokens the conversation may have in all; default 8192, or the model's limit",
         .value = "N",
         .least = 1,
         .most = 1 << 30});
  f.add_choice(kv_dtype,
               {.flag = "--kv-dtype",
                .help = "Type of cached keys and values; auto is bf16, or fp32 where activations "
                        "are not quantised"},
               kFloatNames);
  f.add_choice(
      prefill,
      {.flag = "--prefill",
       .help = "How a prompt is fed: at once, in chunks, or token by token; the result is the same",
       .aliases = {"--kvc-input-mode", "--TokenByTokenOrPromptByPrompt",
                   "--tokenbytokenorpromptbyprompt"}},
      {{"chunked", Prefill::chunked},
       {"whole", Prefill::whole},
       {"token", Prefill::token},
       {"pbp", Prefill::whole},
       {"tbt", Prefill::token},
       {"token-by-token", Prefill::token},
       {"tokenbytoken", Prefill::token}});
  f.add(chunk, {.flag = "--chunk",
                .help = "Tokens per chunk with --prefill chunked; default 512",
                .value = "N",
                .least = 1,
                .most = 1 << 30});
  f.add(use_kvc,
        {.flag = "--use-kvc",
         .help = "Use the KV cache; false recomputes the whole sequence for every token (slow)",
         .aliases = {"--KVCacheOut", "--kv-cache-out", "--kvcacheout"}});
}

std::unique_ptr<Backend> make_backend(Device device, int32_t threads) {
  if (device == Device::cuda) {
    throw_device("--device cuda: this build of nibble has no CUDA backend; use --device cpu");
  }
  return make_cpu_backend(threads > 0 ? threads : default_thread_count());
}

void check_tokenizer_fits(const Tokenizer& tokenizer, const Config& config,
                          const std::string& where) {
  if (tokenizer.vocab_size() > config.V) {
    throw_format(
        "{} has {} tokens, but the model's embedding has only {} rows: they do not belong together",
        where, tokenizer.vocab_size(), config.V);
  }
  for (int32_t id : config.eos_ids) {
    if (id >= tokenizer.vocab_size()) {
      throw_format(
          "{} has {} tokens, but config.json ends a reply with token {}: they do not belong "
          "together",
          where, tokenizer.vocab_size(), id);
    }
  }
}

Runtime open_runtime(const RuntimeOptions& o, TokenizerNeed need) {
  Runtime r;
  r.paths = resolve_model(o.model, need);
  const Config config = load_config(r.paths.config);
  if (!r.paths.tokenizer.empty()) {
    r.tokenizer = Tokenizer::load(r.paths.tokenizer);
    check_tokenizer_fits(*r.tokenizer, config, r.paths.tokenizer.string());
  }
  r.source = open_tensor_source(r.paths.weights);
  check_quant_hint(o.quant, *r.source);
  r.backend = make_backend(o.device, o.threads);
  const LoadOptions load{recipe_of(o.recipe), recipe_of(o.head_recipe), o.scale_rule, std::nullopt};
  r.model = load_model(*r.backend, config, *r.source, load);
  r.compute = float_type(o.compute, DType::f32);
  r.activations = choose_activations(o.activations, r.model.weights);
  log_info("{}", r.source->describe());
  log_info("{}: {}", r.backend->name(), r.model.summary);
  log_info("compute {}, activations of linear layers {}", dtype_name(r.compute),
           r.activations == Activations::none ? "unquantised"
                                              : std::string(activations_name(r.activations)));
  return r;
}

const Tokenizer& Runtime::require_tokenizer() const {
  if (!tokenizer)
    throw_usage(
        "a tokenizer is needed: put tokenizer.json beside the weights, or name it with "
        "--tokenizer");
  return *tokenizer;
}

std::vector<int32_t> Runtime::stop_ids() const {
  std::vector<int32_t> ids = model.config.eos_ids;
  if (tokenizer) {
    for (const auto id : {tokenizer->im_end(), tokenizer->endoftext()}) {
      if (id && std::find(ids.begin(), ids.end(), *id) == ids.end()) ids.push_back(*id);
    }
  }
  return ids;
}

EngineOptions Runtime::engine_options(const CacheOptions& c) const {
  EngineOptions e;
  e.context = c.context.value_or(std::min<int64_t>(8192, model.config.max_positions));
  if (c.chunk && c.prefill != Prefill::chunked) {
    throw_usage("--chunk is the size of --prefill chunked; the other ways have no chunks");
  }
  e.chunk = c.prefill == Prefill::whole   ? 0
            : c.prefill == Prefill::token ? 1
                                          : c.chunk.value_or(512);
  e.compute = compute;
  e.activations = activations;
  e.cache = float_type(c.kv_dtype, activations == Activations::none ? compute : DType::bf16);
  return e;
}

}  // namespace nibble
