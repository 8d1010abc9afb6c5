// SPDX-License-Identifier: MIT
#include "apps/options/runtime_options.h"

#include <utility>
#include <vector>

#include "apps/options/device_option.h"
#include "apps/options/model_options.h"

namespace nibble {
namespace {

const std::vector<std::pair<std::string, FloatChoice>> kFloatNames = {
    {"auto", FloatChoice::automatic}, {"fp32", FloatChoice::fp32},
    {"bf16", FloatChoice::bf16},      {"fp16", FloatChoice::fp16},
    {"float32", FloatChoice::fp32},   {"bfloat16", FloatChoice::bf16},
    {"float16", FloatChoice::fp16},   {"half", FloatChoice::fp16}};
std::vector<std::pair<std::string, FloatChoice>> cache_type_names() {
  auto names = kFloatNames;
  names.insert(names.begin() + 4, {"fp8", FloatChoice::fp8});
  return names;
}
const std::vector<std::pair<std::string, RecipeChoice>> kRecipeNames = {
    {"auto", RecipeChoice::automatic},
    {"bf16", RecipeChoice::bf16},
    {"nvfp4", RecipeChoice::nvfp4}};

}  // namespace

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

void visit_fields(RuntimeOptions& o, Fields& f) {
  visit_fields(o.model, f);
  f.section("Execution");
  add_devices(f, o.device, o.threads);
  add_compute_type(f, o.compute, "auto is bf16 on a GPU, fp32 on a CPU");
  f.add_choice(o.activations,
               {.flag = "--activations",
                .help = "Inputs of linear layers: bf16 leaves them in the compute type, int8 and "
                        "nvfp4 quantise them; auto is int8 for NVFP4 weights on a CPU, bf16 "
                        "elsewhere; a GPU has no int8"},
               {{"auto", ActivationsChoice::automatic},
                {"bf16", ActivationsChoice::bf16},
                {"int8", ActivationsChoice::int8},
                {"nvfp4", ActivationsChoice::nvfp4}});
  f.add(o.require_native_fp4,
        {.flag = "--require-native-fp4",
         .help = "With --activations nvfp4: fail where the GPU's products of two NVFP4 operands "
                 "would be emulated"});
  f.add_choice(o.recipe,
               {.flag = "--recipe", .help = "Linear layers: as stored (auto), dense, or NVFP4"},
               kRecipeNames);
  f.add_choice(o.head_recipe,
               {.flag = "--head-recipe", .help = "The head alone; auto follows --recipe"},
               kRecipeNames);
  add_scale_rule(f, o.scale_rule, "How dense weights are quantised under --recipe nvfp4");
  f.add_choice(o.quant,
               {.flag = "--quant",
                .help = "What the weight file is expected to be; another kind is an error"},
               {{"any", QuantHint::none},
                {"nvfp4", QuantHint::nvfp4},
                {"none", QuantHint::dense},
                {"fp4", QuantHint::nvfp4}});
}

void visit_fields(CacheOptions& o, Fields& f) {
  f.section("Context and cache");
  f.add(o.context,
        {.flag = "--context",
         .help = "Tokens the conversation may have in all; default 8192, or the model's limit",
         .value = "N",
         .least = 1,
         .most = 1 << 30});
  f.add_choice(o.kv_dtype,
               {.flag = "--kv-dtype",
                .help = "Type of cached keys and values; auto is bf16, or the compute type where "
                        "activations are not quantised; fp8 is E4M3"},
               cache_type_names());
  f.add_choice(
      o.prefill,
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
  f.add(o.chunk, {.flag = "--chunk",
                  .help = "Tokens per chunk with --prefill chunked; default 512, on a GPU "
                          "what the workspace holds, at most 2048",
                  .value = "N",
                  .least = 1,
                  .most = 1 << 30});
  f.add(o.use_kvc,
        {.flag = "--use-kvc",
         .help = "Use the KV cache; false recomputes the whole sequence for every token (slow)",
         .aliases = {"--KVCacheOut", "--kv-cache-out", "--kvcacheout"}});
}

}  // namespace nibble
