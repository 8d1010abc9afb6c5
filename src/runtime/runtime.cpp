// SPDX-License-Identifier: MIT
#include "runtime/runtime.h"

#include <algorithm>

#include "backends/cpu/cpu_backend.h"
#include "backends/cuda/cuda_backend.h"
#include "convert/checkpoint_model.h"
#include "core/log.h"
#include "core/thread_pool.h"
#include "model/config.h"
#include "runtime/model_texts.h"
#include "runtime/runtime_memory.h"

namespace nibble {
namespace {

std::optional<Recipe> recipe_of(RecipeChoice choice) {
  if (choice == RecipeChoice::automatic) return std::nullopt;
  return choice == RecipeChoice::bf16 ? Recipe::bf16 : Recipe::nvfp4;
}

// Before the weights are loaded: `packed` says whether a linear layer will be NVFP4.
Activations choose_activations(ActivationsChoice choice, Device::Kind device, bool packed) {
  switch (choice) {
    case ActivationsChoice::automatic: return default_activations(device, packed);
    case ActivationsChoice::bf16: return Activations::none;
    case ActivationsChoice::nvfp4: return Activations::nvfp4;
    case ActivationsChoice::int8: break;
  }
  if (device == Device::cuda) {
    throw_usage(
        "--activations int8 is the CPU's way to be fast; on a GPU leave --activations out "
        "(unquantised), take nvfp4, or run with --device cpu");
  }
  if (!packed) {
    throw_usage(
        "--activations int8 needs NVFP4 weights, but this model's are dense; convert it with "
        "--quant nvfp4, load it with --recipe nvfp4, or leave --activations out");
  }
  return Activations::int8;
}

void check_native_fp4(const RuntimeOptions& o) {
  if (!o.require_native_fp4) return;
  if (o.activations != ActivationsChoice::nvfp4) {
    throw_usage(
        "--require-native-fp4 is about products of two NVFP4 operands: add --activations nvfp4");
  }
  if (o.device.kind == Device::cpu) {
    throw_usage("--require-native-fp4 needs a GPU with FP4 tensor cores, found --device cpu");
  }
  if (float_type(o.compute, DType::bf16) == DType::f32) {
    throw_usage(
        "--require-native-fp4: FP4 tensor cores take bf16 or fp16, found --compute-dtype fp32");
  }
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
    case FloatChoice::fp8: return DType::f8_e4m3;
  }
  return automatic;
}

bool any_packed(const Weights& w) {
  return std::any_of(w.block.begin(), w.block.end(), [](const BlockWeights& b) {
    return std::ranges::any_of(b.linears(), [&](const auto& m) { return (b.*m.at).is_packed(); });
  });
}

std::unique_ptr<Backend> make_backend(const Device& device, int32_t threads) {
  const Device chosen = choose_device(device);
  if (chosen.kind == Device::cuda) return make_cuda_backend({.device = chosen.index});
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

Runtime open_runtime(const RuntimeOptions& o, TokenizerNeed need, const CacheOptions* cache) {
  check_native_fp4(o);
  ModelPaths paths = resolve_model(o.model, need);
  auto source = open_weights(paths.weights);
  return open_runtime(o, std::move(paths), std::move(source), cache);
}

Runtime open_runtime(const RuntimeOptions& o, ModelPaths paths,
                     std::unique_ptr<TensorSource> source, const CacheOptions* cache,
                     std::shared_ptr<Backend> backend) {
  if (!o.device.beside.empty()) {
    throw_usage(
        "--device names {} devices, and this runs on one; nibble serve, check and generate --batch "
        "take several",
        o.device.beside.size() + 1);
  }
  Runtime r = prepare_runtime(o, std::move(paths), std::move(source), std::move(backend));
  std::optional<EngineOptions> engine;
  if (cache) engine = r.engine_options(*cache);
  check_fits(*r.backend, memory_need(r, engine));
  load_runtime(r);
  return r;
}

Runtime prepare_runtime(const RuntimeOptions& o, ModelPaths paths,
                        std::unique_ptr<TensorSource> source, std::shared_ptr<Backend> backend) {
  check_native_fp4(o);
  Runtime r;
  r.paths = std::move(paths);
  r.source = std::move(source);
  r.model.config = load_config(r.paths.config);
  r.generation = load_generation_config(r.paths.config);
  add_end_tokens(r.model.config, r.generation);
  check_quant_hint(o.quant, *r.source);
  r.device = choose_device(o.device);
  if (o.require_native_fp4 && r.device.kind == Device::cpu) {
    throw_device(
        "--require-native-fp4 needs a GPU with FP4 tensor cores, but --device auto found no GPU it "
        "can use; leave it out, or see nibble doctor");
  }
  r.compute = float_type(o.compute, r.device.kind == Device::cuda ? DType::bf16 : DType::f32);
  r.load = {recipe_of(o.recipe), recipe_of(o.head_recipe), o.scale_rule, std::nullopt, r.compute,
            o.not_finite};
  const bool packed = loads_packed(r.model.config, *r.source, r.load);
  r.activations = choose_activations(o.activations, r.device.kind, packed);
  if (!r.paths.tokenizer.empty()) {
    r.tokenizer = load_tokenizer(r.paths.tokenizer);
    check_tokenizer_fits(*r.tokenizer, r.model.config, r.paths.tokenizer.string());
  }
  if (backend) {
    r.backend = std::move(backend);
  } else if (r.device.kind == Device::cuda) {
    r.backend =
        make_cuda_backend({.device = r.device.index, .require_native_fp4 = o.require_native_fp4});
  } else {
    r.backend = make_cpu_backend(o.threads > 0 ? o.threads : default_thread_count());
  }
  return r;
}

void load_runtime(Runtime& r) {
  const bool packed = loads_packed(r.model.config, *r.source, r.load);
  r.model = load_model(*r.backend, r.model.config, *r.source, r.load);
  log_info("{}", r.source->describe());
  log_info("{}: {}", r.backend->name(), r.model.summary);
  log_info("compute {}, activations of linear layers {}", dtype_name(r.compute),
           r.activations == Activations::none ? "unquantised"
                                              : std::string(activations_name(r.activations)));
  const std::string kernels = r.backend->linear_kernels(r.compute, r.activations);
  if (packed && !kernels.empty()) log_info("products, {}", kernels);
  const Tensor& dense = r.model.weights.block.front().qkv.dense;
  if (!kernels.empty() && dense && dense.dtype != r.compute && r.compute != DType::f32) {
    log_warning(
        "the weights are {} and computing is in {}: their products take a general kernel, many "
        "times slower; nibble convert makes the file fit, or give --compute-dtype {}",
        dtype_name(dense.dtype), dtype_name(r.compute), dtype_name(dense.dtype));
  }
}

const Tokenizer& Runtime::require_tokenizer() const {
  if (!tokenizer)
    throw_usage(
        "a tokenizer is needed: put tokenizer.json beside the weights, or name it with "
        "--tokenizer");
  return *tokenizer;
}

std::vector<int32_t> stop_ids_of(const Config& config, const Tokenizer* tokenizer) {
  std::vector<int32_t> ids = config.eos_ids;
  if (tokenizer) {
    for (const auto id : {tokenizer->im_end(), tokenizer->endoftext()}) {
      if (id && std::find(ids.begin(), ids.end(), *id) == ids.end()) ids.push_back(*id);
    }
  }
  return ids;
}

std::vector<int32_t> Runtime::stop_ids() const {
  return stop_ids_of(model.config, tokenizer ? &*tokenizer : nullptr);
}

Activations default_activations(Device::Kind device, bool packed) {
  return packed && device == Device::cpu ? Activations::int8 : Activations::none;
}

DType default_cache(Device::Kind device, Activations activations, DType compute) {
  return device == Device::cuda || activations == Activations::none ? compute : DType::bf16;
}

EngineOptions Runtime::engine_options(const CacheOptions& c, int64_t sequences) const {
  const bool on_gpu = device.kind == Device::cuda;
  EngineOptions e;
  e.context = c.context.value_or(std::min<int64_t>(8192, model.config.max_positions));
  if (c.chunk && c.prefill != Prefill::chunked) {
    throw_usage("--chunk is the size of --prefill chunked; the other ways have no chunks");
  }
  const int64_t chunk = on_gpu ? gpu_chunk(model.config, compute, sequences) : 512;
  e.chunk = c.prefill == Prefill::whole   ? 0
            : c.prefill == Prefill::token ? 1
                                          : c.chunk.value_or(chunk);
  e.compute = compute;
  e.activations = activations;
  e.cache = float_type(c.kv_dtype, default_cache(device.kind, activations, compute));
  return e;
}

}  // namespace nibble
