// SPDX-License-Identifier: MIT
// The commands and the engine on a GPU: the CPU's ids, the planned memory, every option. Skipped
// where there is none.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <thread>

#include "apps/cli_run.h"
#include "backends/cpu/cpu_backend.h"
#include "backends/cuda/cuda_backend.h"
#include "core/half.h"
#include "core/memory_info.h"
#include "generate/generator.h"
#include "measure/bench_random.h"
#include "runtime/runtime_memory.h"

namespace nibble::test {
namespace {

class Cuda : public testing::Test {
 protected:
  void SetUp() override {
    const CudaSupport support = cuda_support();
    if (!support.usable()) GTEST_SKIP() << "no GPU: " << support.problem;
  }
  TemporaryDirectory dir_{"cuda"};
};

// Wide enough that every fast path of the kernels is taken, small enough to be made in a second.
Config wide_config() {
  Config c;
  c.C = 1024;
  c.L = 4;
  c.Hq = 16;
  c.Hkv = 8;
  c.D = 128;
  c.F = 3072;
  c.V = 32000;
  c.tied = true;
  c.max_positions = 40960;
  return c;
}

// Shapes of real models with few layers: heads of 64 and 128, ratios 7, 3, 6 and 5, biases or
// neither biases nor norms, widths that are no multiples of 128, fewer strips than multiprocessors.
struct Family {
  const char* name;
  int64_t C, Hq, Hkv, D, F;
  bool qk_norm, qkv_bias;
  int64_t L = 3;
};
constexpr Family kFamilies[] = {
    {"SmolLM2-135M", 576, 9, 3, 64, 1536, false, false},
    {"SmolLM2-360M", 960, 15, 5, 64, 2560, false, false},
    {"Qwen2.5-0.5B", 896, 14, 2, 64, 4864, false, true},
    {"Qwen2.5-1.5B", 1536, 12, 2, 128, 8960, false, true},
    {"Qwen2.5-7B", 3584, 28, 4, 128, 18944, false, true, 1},
    {"Llama-3.2-1B", 2048, 32, 8, 64, 8192, false, false},
    {"norms of heads of 64", 1024, 16, 8, 64, 3072, true, false},
};
Config family_config(const Family& f) {
  Config c = wide_config();
  c.C = f.C, c.L = f.L, c.Hq = f.Hq, c.Hkv = f.Hkv, c.D = f.D, c.F = f.F;
  c.qk_norm = f.qk_norm, c.qkv_bias = f.qkv_bias;
  return c;
}

std::vector<int32_t> some_ids(int64_t n, int64_t vocabulary) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < n; ++i) ids.push_back(int32_t((i * 7919 + 13) % vocabulary));
  return ids;
}

uint64_t planned_bytes(const Model& model, const EngineOptions& o) {
  return model.memory.capacity() + KvCache::bytes(model.config, o.context, o.cache) + kGpuWorkspace;
}

EngineOptions gpu_options(int64_t context, DType cache = DType::bf16) {
  EngineOptions o;
  o.context = context;
  o.chunk = gpu_chunk(wide_config(), DType::bf16, 1);
  o.compute = DType::bf16;
  o.cache = cache;
  return o;
}

// The peak is the process's: tests of a plan come first, the smaller plan before the larger. (ctest
// gives each test a process of its own.)
TEST_F(Cuda, GeneratingStaysWithinPlan) {
  const auto backend = make_cuda_backend();
  EXPECT_LE(backend->device_memory().bytes, kGpuScratch);
  const Model model =
      load_model(*backend, wide_config(), *make_random_source(wide_config(), 1, 4), {});
  EXPECT_LE(backend->device_memory().peak_bytes, model.memory.capacity() + kGpuWorkspace);
  const EngineOptions o = gpu_options(4096);
  Engine engine(*backend, model, o);
  GenerateOptions g;
  g.max_tokens = 64;
  const GenerateResult r = generate(engine, some_ids(3000, model.config.V), g);
  EXPECT_FALSE(is_unhealthy(r.reason)) << finish_reason_name(r.reason);
  EXPECT_LE(backend->device_memory().peak_bytes, planned_bytes(model, o));
}

TEST_F(Cuda, APromptOf32kTokensStaysWithinPlan) {
  for (const DType cache : {DType::f8_e4m3, DType::bf16}) {
    const auto backend = make_cuda_backend();
    const Model model =
        load_model(*backend, wide_config(), *make_random_source(wide_config(), 1, 4), {});
    const EngineOptions o = gpu_options(32768 + 16, cache);
    const uint64_t before = backend->device_memory().allocations;
    Engine engine(*backend, model, o);
    GenerateOptions g;
    g.max_tokens = 16;
    const GenerateResult r = generate(engine, some_ids(32768, model.config.V), g);
    EXPECT_FALSE(is_unhealthy(r.reason)) << finish_reason_name(r.reason);
    EXPECT_EQ(engine.length(), 32768 + int64_t(r.ids.size()) - 1);
    EXPECT_LE(backend->device_memory().peak_bytes, planned_bytes(model, o));
    // Cache, activations and a few tables: nothing is allocated chunk by chunk.
    EXPECT_LE(backend->device_memory().allocations - before, 16u);
  }
}

// The memory of the host while the weights go to the GPU: a few pieces, not the model.
TEST_F(Cuda, LoadingKeepsNoCopyOfTheModel) {
  const auto backend = make_cuda_backend();
  Config c = wide_config();
  c.V = 151936;
  c.L = 16;
  const auto source = make_random_source(c, 1, 4);
  const uint64_t before = process_resident_bytes();
  const uint64_t peak_before = process_peak_bytes();
  const Model model = load_model(*backend, c, *source, {});
  ASSERT_GT(model.memory.capacity(), uint64_t(400) << 20);
  const uint64_t grown =
      process_peak_bytes() - std::min(process_peak_bytes(), std::max(before, peak_before));
  EXPECT_LE(grown, uint64_t(200) << 20);
}

// What the driver says is taken, our own allocations and everything else: graphs, library handles,
// code. The context itself is there before.
TEST_F(Cuda, TheDriversCountStaysWithinPlan) {
  const auto backend = make_cuda_backend();
  const uint64_t before = backend->available_memory();
  const uint64_t held = backend->device_memory().bytes;
  const Model model =
      load_model(*backend, wide_config(), *make_random_source(wide_config(), 1, 4), {});
  const EngineOptions o = gpu_options(4096);
  Engine engine(*backend, model, o);
  GenerateOptions g;
  g.max_tokens = 64;
  generate(engine, some_ids(3000, model.config.V), g);
  const uint64_t taken = before - std::min(before, backend->available_memory()) + held;
  EXPECT_LE(taken, planned_bytes(model, o)) << "of which ours: " << backend->device_memory().bytes;
}

// The kernels of wide models, at contexts where attention is split: the same bits whether each
// launch is made by the host, replayed, or one sequence's token is one launch.
TEST_F(Cuda, ReplayHasTheBitsOfLaunches) {
  struct Case {
    Config config;
    DType cache;
    int64_t sequences, prompt;
    bool row_scales = false;
  };
  using Decode = CudaOptions::Decode;
  const auto run = [&](const Case& k, const char* sync_each_op, Decode decode) {
    // Read when a backend is made; NIBBLE_SYNC_EACH_OP=1: nothing is recorded.
    ::setenv("NIBBLE_SYNC_EACH_OP", sync_each_op, 1);
    CudaOptions options;
    options.decode = decode;
    const auto backend = make_cuda_backend(options);
    Model model = load_model(*backend, k.config, *make_random_source(k.config, 1, 4), {});
    std::vector<Buffer> scales;
    const auto add_scales = [&](LinearWeight& w) {
      std::vector<float> values;
      for (int64_t i = 0; i < w.out; ++i) values.push_back(0.5f + float(i * 7919 % 1009) / 1009);
      scales.push_back(backend->allocate(size_t(w.out) * 4, "row scales"));
      w.row_scale = make_tensor(scales.back().data(), DType::f32, {w.out});
      backend->upload(w.row_scale, values.data());
    };
    if (k.row_scales) {
      for (BlockWeights& b : model.weights.block) {
        for (const auto& m : b.linears()) add_scales(b.*m.at);
      }
      add_scales(model.weights.head);
    }
    BatchEngine engine(*backend, model, gpu_options(2100, k.cache), k.sequences);
    std::vector<DecodeStep> steps;
    for (int64_t s = 0; s < k.sequences; ++s) {
      // Of different lengths.
      const int64_t shorter = 61 * s % std::max<int64_t>(1, k.prompt * 19 / 20);
      engine.feed(s, some_ids(k.prompt - shorter, model.config.V));
      steps.push_back({s, engine.sample({}, 0), {}, 0});
    }
    std::vector<float> all;
    for (int i = 0; i < 5; ++i) {
      const auto next = engine.step(steps);
      for (int64_t s = 0; s < k.sequences; ++s) steps[size_t(s)].id = next[size_t(s)];
      const std::vector<float> logits = engine.logits();
      all.insert(all.end(), logits.begin(), logits.end());
    }
    ::unsetenv("NIBBLE_SYNC_EACH_OP");
    const CudaDevice device = cuda_support().devices[0];
    const bool wanted = device.major == 9 && sync_each_op[0] == '0' &&
                        decode == Decode::automatic && k.sequences == 1;
    EXPECT_EQ(engine.decode_way(k.sequences).one_launch, wanted)
        << engine.decode_way(k.sequences).text;
    return all;
  };
  Config eight_heads = wide_config(), very_wide = wide_config(), uneven = wide_config();
  eight_heads.Hq = 32, eight_heads.Hkv = 4, eight_heads.L = 2;
  very_wide.C = 5120, very_wide.Hq = 40, very_wide.L = 2;
  // The shape of Qwen3-4B: no product's strips divide evenly among 132 multiprocessors.
  uneven.C = 2560, uneven.Hq = 32, uneven.F = 9728, uneven.L = 2;
  std::vector<Case> cases = {{eight_heads, DType::bf16, 1, 300},
                             {very_wide, DType::bf16, 1, 20},
                             {uneven, DType::bf16, 1, 2000, true},
                             {wide_config(), DType::bf16, 1, 100, true}};
  for (const DType cache : {DType::bf16, DType::f8_e4m3}) {
    for (const int64_t prompt : {1, 63, 2000}) cases.push_back({wide_config(), cache, 1, prompt});
    for (const int64_t n : {4, 33}) cases.push_back({wide_config(), cache, n, 2000});
  }
  for (const Family& f : kFamilies) {
    const Config c = family_config(f);
    for (const DType cache : {DType::bf16, DType::f8_e4m3}) {
      for (const int64_t prompt : {1, 700}) cases.push_back({c, cache, 1, prompt});
    }
    for (const int64_t n : {3, 70}) cases.push_back({c, DType::bf16, n, 300});
  }
  for (const Case& k : cases) {
    const std::vector<float> launched = run(k, "1", Decode::automatic);
    for (const Decode decode : {Decode::launches, Decode::automatic}) {
      const std::vector<float> replayed = run(k, "0", decode);
      ASSERT_EQ(launched.size(), replayed.size());
      EXPECT_EQ(std::memcmp(launched.data(), replayed.data(), launched.size() * 4), 0)
          << dtype_name(k.cache) << ", sequences " << k.sequences << ", prompt " << k.prompt
          << ", width " << k.config.C << ", heads of " << k.config.D << ", one launch "
          << (decode == Decode::automatic);
    }
  }
}

// Two backends of one process, each in a thread of its own, do not know of each other: engines,
// batches, recordings, memory accounts and training steps come out as they do alone.
TEST_F(Cuda, TwoBackendsInTwoThreads) {
  const auto work = [](uint64_t seed) {
    const auto backend = make_cuda_backend();
    const Config config = wide_config();
    const Model model = load_model(*backend, config, *make_random_source(config, seed, 4), {});
    std::vector<float> all;
    for (const int64_t n : {int64_t(1), int64_t(5)}) {
      BatchEngine engine(*backend, model, gpu_options(600), n);
      std::vector<DecodeStep> steps;
      for (int64_t s = 0; s < n; ++s) {
        engine.feed(s, some_ids(300 + s, config.V));
        steps.push_back({s, engine.sample({}, 0), {}, 0});
      }
      for (int i = 0; i < 40; ++i) {
        const auto next = engine.step(steps, Follow::chosen);
        for (int64_t s = 0; s < n; ++s) steps[size_t(s)].id = next[size_t(s)];
        all.insert(all.end(), next.begin(), next.end());
      }
      const std::vector<float> logits = engine.logits();
      all.insert(all.end(), logits.begin(), logits.end());
    }
    const DeviceMemory memory = backend->device_memory();
    EXPECT_GE(memory.peak_bytes, model.memory.capacity());
    EXPECT_LE(memory.peak_bytes, model.memory.capacity() + (uint64_t(400) << 20));
    return all;
  };
  const std::vector<float> first = work(1), second = work(2);
  for (int round = 0; round < 3; ++round) {
    std::vector<float> a, b;
    std::thread other([&] { b = work(2); });
    a = work(1);
    other.join();
    EXPECT_TRUE(a == first && b == second) << "round " << round;
  }
}

// Masters and moments in host memory, in more pieces than there are windows, have the bits of those
// in the GPU's.
TEST_F(Cuda, UpdatesInHostMemoryHaveTheSameBits) {
  const auto backend = make_cuda_backend();
  constexpr int64_t kElements = (int64_t(25) << 20) + 200;
  const MomentFormat formats[] = {MomentFormat::int8, MomentFormat::nvfp4, MomentFormat::bf16,
                                  MomentFormat::f32};
  for (const MomentFormat format : formats) {
    for (const DType type : {DType::bf16, DType::f32}) {
      struct Parameter {
        Arena state, gradient;
        Tensor master, m, v, grad;
      };
      const auto make = [&](Place place) {
        const auto take = [&](Arena& state, Arena& gradient, Parameter* p) {
          const int64_t bytes = int64_t(moment_bytes(format, kElements));
          const Tensor master = state.take(type, {kElements}), m = state.take(DType::u8, {bytes}),
                       v = state.take(DType::u8, {bytes});
          const Tensor grad = gradient.take(DType::bf16, {kElements});
          if (p) p->master = master, p->m = m, p->v = v, p->grad = grad;
        };
        Arena state("state"), gradient("gradient");
        take(state, gradient, nullptr);
        Parameter p{Arena("state", backend->allocate(state.peak(), "state", place)),
                    Arena("gradient", backend->allocate(gradient.peak(), "gradient")),
                    {},
                    {},
                    {},
                    {}};
        take(p.state, p.gradient, &p);
        return p;
      };
      Parameter here = make(Place::device), there = make(Place::host);
      std::vector<uint16_t> grad(size_t(kElements), 0);
      std::vector<std::byte> master(here.master.bytes());
      for (size_t i = 0; i < grad.size(); ++i) {
        const float g = float(int64_t(i * 2654435761u % 2001) - 1000) * 1e-6f;
        grad[i] = to_bf16(g).bits;
        const float w = 50 * g;
        const uint16_t half = to_bf16(w).bits;
        std::memcpy(master.data() + i * dtype_bytes(type),
                    type == DType::f32 ? static_cast<const void*>(&w) : &half, dtype_bytes(type));
      }
      for (Parameter* p : {&here, &there}) {
        backend->upload(p->master, master.data());
        backend->upload(p->grad, grad.data());
        for (int t = 1; t <= 2; ++t) {
          AdamwStep s;
          s.lr = 1e-3f, s.bias1 = 0.1f * float(t), s.bias2 = 1e-3f * float(t);
          s.seed = 5, s.stream = uint64_t(t);
          const int64_t cut = (int64_t(9) << 20) + 256;
          backend->adamw_step(p->master, p->grad, p->m, p->v, format, 0, cut, s, {});
          backend->adamw_step(p->master, p->grad, p->m, p->v, format, cut, kElements - cut, s, {});
          backend->await_updates(backend->mark_updates());
        }
      }
      for (const auto& [a, b] : {std::pair(here.master, there.master), std::pair(here.m, there.m),
                                 std::pair(here.v, there.v)}) {
        std::vector<std::byte> x(a.bytes()), y(b.bytes());
        backend->download(x.data(), a);
        backend->download(y.data(), b);
        EXPECT_TRUE(x == y) << moment_format_name(format) << " " << dtype_name(type);
      }
    }
  }
}

// In fp32 a GPU's greedy ids are the CPU's, whichever way the prompt is fed.
TEST_F(Cuda, GreedyIdsAreTheCpus) {
  for (const char* name :
       {"qwen3_tied", "qwen3_untied", "qwen3_tied_nvfp4", "predecessor", "qwen2_tied",
        "qwen2_untied", "llama_tied", "llama3_rope", "yarn_rope"}) {
    std::vector<std::string> args = {"generate",
                                     "--model",
                                     golden(name),
                                     "--input-ids",
                                     "3,1,4,1,5,9,2,6",
                                     "--temp",
                                     "0",
                                     "--ignore-eos",
                                     "--max-tokens",
                                     "24",
                                     "--print-ids",
                                     "--activations",
                                     "bf16",
                                     "--kv-dtype",
                                     "fp32",
                                     "--compute-dtype",
                                     "fp32"};
    const auto with = [&](std::vector<std::string> more) {
      std::vector<std::string> all = args;
      all.insert(all.end(), more.begin(), more.end());
      return cli_ok(all);
    };
    const std::string cpu = with({"--device", "cpu"});
    EXPECT_EQ(with({"--device", "cuda"}), cpu) << name;
    EXPECT_EQ(with({"--device", "auto"}), cpu) << name;
    EXPECT_EQ(with({"--device", "cuda:0", "--prefill", "token"}), cpu) << name;
    EXPECT_EQ(with({"--device", "cuda", "--chunk", "3"}), cpu) << name;
    EXPECT_EQ(with({"--device", "cuda", "--use-kvc", "false"}), cpu) << name;
  }
}

TEST_F(Cuda, EveryTypeGenerates) {
  const std::string model = golden("predecessor");
  for (const char* compute : {"auto", "bf16", "fp16", "fp32"}) {
    for (const char* cache : {"auto", "bf16", "fp8"}) {
      for (const char* activations : {"auto", "bf16", "nvfp4"}) {
        const std::vector<std::string> args = {
            "generate",        "--model",      model,        "--input-ids",
            "3,1,4,1,5",       "--max-tokens", "8",          "--ignore-eos",
            "--device",        "cuda",         "--kv-dtype", cache,
            "--activations",   activations,    "--temp",     "0",
            "--compute-dtype", compute,        "--print-ids"};
        const std::string first = cli_ok(args);
        EXPECT_EQ(cli_ok(args), first) << compute << " " << cache << " " << activations;
      }
    }
  }
}

TEST_F(Cuda, WhatAGpuDoesNotDoIsRefused) {
  const std::string model = golden("predecessor");
  const auto generate = [&](std::vector<std::string> more) {
    std::vector<std::string> args = {"generate", "--model",  model, "--input-ids",
                                     "1,2",      "--device", "cuda"};
    args.insert(args.end(), more.begin(), more.end());
    return args;
  };
  cli_fails(generate({"--activations", "int8"}), 2, "--activations int8 is the CPU's");
  cli_fails({"generate", "--model", model, "--input-ids", "1,2", "--device", "cuda:63"}, 4, "63");
  if (cuda_support().devices.front().major < 10) {
    cli_fails(generate({"--activations", "nvfp4", "--require-native-fp4"}), 4,
              "--require-native-fp4");
  }
}

// More cache than any GPU has: the message has the parts and a context that would fit.
TEST_F(Cuda, AModelThatDoesNotFitIsExit4) {
  nlohmann::json config =
      nlohmann::json::parse(read_text_file(golden_dir() / "qwen3_tied" / "config.json"));
  config["max_position_embeddings"] = 1 << 30;
  replace_file(dir_.path() / "config.json", config.dump());
  cli_fails({"generate", "--model", golden("qwen3_tied"), "--config", dir_.file("config.json"),
             "--input-ids", "1,2", "--device", "cuda", "--context", "1000000000"},
            4, "would fit");
}

TEST_F(Cuda, ChecksPass) {
  for (const char* name : {"qwen3_tied", "qwen3_untied", "predecessor"}) {
    const CliResult r = cli({"check", "--model", golden(name), "--device", "cuda", "--finite",
                             "--kv", "--paths", "--iterations", "1"});
    EXPECT_EQ(r.code, 0) << name << "\n" << r.out << r.err;
    for (const char* path : {"[cuda-fp32]", "[cache]", "[training]", "[bf16]", "[bf16-cache]",
                             "[fp8-cache]", "[nvfp4]"}) {
      EXPECT_TRUE(contains(r.out, path)) << path << "\n" << r.out;
    }
  }
}

TEST_F(Cuda, TraceAgreesWithTheCpus) {
  const std::string model = golden("predecessor");
  const auto trace = [&](const std::string& device) {
    const std::string out = dir_.file(device + ".safetensors");
    cli_ok({"trace", "--model", model, "--input-ids", "3,1,4,1,5,9,2,6", "--dump", "logits,acts",
            "--compute-dtype", "fp32", "--device", device, "--out", out});
    return out;
  };
  const std::string cpu = trace("cpu"), cuda = trace("cuda");
  const CliResult r = cli({"trace", "--compare", cuda, cpu, "--tolerance", "2.5e-5"});
  EXPECT_EQ(r.code, 0) << r.out;
}

TEST_F(Cuda, BenchMeasuresTheDevice) {
  const std::string config = (golden_dir() / "qwen3_tied" / "config.json").string();
  const CliResult r =
      cli({"bench", "--random-weights", "--config", config, "--repeat", "2", "--prompt-tokens",
           "64", "--tokens", "4", "--batch", "1,3", "--buffer-mib", "64", "--device", "cuda",
           "--json", dir_.file("b.json")});
  EXPECT_EQ(r.code, 0) << r.err;
  const auto j = nlohmann::json::parse(read_text_file(dir_.path() / "b.json"));
  EXPECT_GT(j.at("copy_bytes_per_s"), 1e10);
  EXPECT_GT(j.at("gemm_flops_per_s"), 1e12);
  EXPECT_EQ(j.at("compute_dtype"), "bf16");
  EXPECT_EQ(j.at("activations"), "bf16");
  const auto& memory = j.at("device_memory");
  EXPECT_LE(memory.at("peak_bytes"), memory.at("plan_bytes"));
  ASSERT_EQ(j.at("rows").size(), 3u);  // one prompt, two batches
  EXPECT_EQ(j.at("rows")[2].at("batch"), 3);
  EXPECT_TRUE(contains(r.out, "of copy")) << r.out;
}

}  // namespace
}  // namespace nibble::test
