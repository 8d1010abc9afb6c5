// SPDX-License-Identifier: MIT
// A model opened on a device: what is asked for, and the objects that come of it. The only place
// that picks a backend.
#pragma once
#include <memory>
#include <optional>
#include <string>

#include "generate/engine.h"
#include "runtime/device.h"
#include "runtime/generation_config.h"
#include "runtime/model_paths.h"
#include "tokenizer/tokenizer.h"

namespace nibble {

// `automatic` everywhere means: what suits the file and the device, said in the log.
enum class RecipeChoice { automatic, bf16, nvfp4 };
enum class ActivationsChoice { automatic, bf16, int8, nvfp4 };
enum class FloatChoice { automatic, fp32, bf16, fp16, fp8 };  // fp8: E4M3, of the cache only
enum class QuantHint { none, nvfp4, dense };  // what the user believes the file to be
enum class Prefill { whole, chunked, token };

struct RuntimeOptions {
  ModelOptions model;
  Devices device;       // several: for open_replicas
  int32_t threads = 0;  // of all copies on the CPU together
  FloatChoice compute = FloatChoice::automatic;
  ActivationsChoice activations = ActivationsChoice::automatic;
  bool require_native_fp4 = false;
  RecipeChoice recipe = RecipeChoice::automatic, head_recipe = RecipeChoice::automatic;
  ScaleRule scale_rule = ScaleRule::four_over_six;
  QuantHint quant = QuantHint::none;
  NotFinite not_finite = NotFinite::refuse;  // check loads what is broken, to say how
};

// How much is remembered, and how prompts are fed.
struct CacheOptions {
  std::optional<int64_t> context;  // unset: 8192, or what the model knows
  FloatChoice kv_dtype = FloatChoice::automatic;
  Prefill prefill = Prefill::chunked;
  std::optional<int64_t> chunk;  // unset: 512, on a GPU gpu_chunk()
  bool use_kvc = true;
};

// What inference does where nothing is asked for. `packed`: a linear layer is NVFP4.
Activations default_activations(Device::Kind device, bool packed);
DType default_cache(Device::Kind device, Activations activations, DType compute);

// End tokens: those of config.json and generation_config.json, <|im_end|> and <|endoftext|>. The
// tokenizer may be null.
std::vector<int32_t> stop_ids_of(const Config& config, const Tokenizer* tokenizer);

struct Runtime {
  ModelPaths paths;
  Device device = Device::cpu;       // where the backend is
  std::shared_ptr<Backend> backend;  // shared by models that are compared where their logits are
  std::unique_ptr<TensorSource> source;
  LoadOptions load;
  Model model;
  DType compute = DType::f32;
  Activations activations = Activations::none;
  std::optional<Tokenizer> tokenizer;
  GenerationConfig generation;

  // The tokenizer, or a UsageError that says how to give one.
  const Tokenizer& require_tokenizer() const;
  std::vector<int32_t> stop_ids() const;
  // For an engine of so many sequences.
  EngineOptions engine_options(const CacheOptions& cache, int64_t sequences = 1) const;
};

DType float_type(FloatChoice choice, DType automatic);

bool any_packed(const Weights& weights);  // a linear layer held as NVFP4
std::unique_ptr<Backend> make_backend(const Device& device, int32_t threads);
// Opens, checks and loads everything; logs what was chosen. With `cache`, weights and cache
// together must fit (check_fits in runtime_memory.h) before anything is loaded.
Runtime open_runtime(const RuntimeOptions& options, TokenizerNeed need,
                     const CacheOptions* cache = nullptr);
// The same with weights from elsewhere; `paths` names config and tokenizer. With `backend`, made
// for the same device, the model joins another's there.
Runtime open_runtime(const RuntimeOptions& options, ModelPaths paths,
                     std::unique_ptr<TensorSource> source, const CacheOptions* cache = nullptr,
                     std::shared_ptr<Backend> backend = nullptr);
// The same in two parts: all that is known before weights are read, and reading them. Whoever has
// several asks for the memory of all between the two.
Runtime prepare_runtime(const RuntimeOptions& options, ModelPaths paths,
                        std::unique_ptr<TensorSource> source,
                        std::shared_ptr<Backend> backend = nullptr);
void load_runtime(Runtime& runtime);
// Throws FormatError when the tokenizer can produce ids the model has no embedding for.
void check_tokenizer_fits(const Tokenizer& tokenizer, const Config& config,
                          const std::string& where);

}  // namespace nibble
