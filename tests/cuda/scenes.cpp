// SPDX-License-Identifier: MIT
#include "scenes.h"

#include <algorithm>
#include <cstring>

#include "backends/cuda/cuda_backend.h"
#include "generate/batch_engine.h"
#include "model/load.h"
#include "support/train_toy.h"
#include "train/trainer.h"

namespace nibble::test {
namespace {

constexpr size_t kKiB = 1024, kMiB = 1024 * kKiB, kGiB = 1024 * kMiB;

// What a data sheet and the CUDA programming guide say of one GPU of each kind.
const FakeGpu kGpus[] = {
    {"A100", 8, 0, 108, 163 * kKiB, 40 * kMiB, 80 * kGiB, false},
    {"RTX 3090", 8, 6, 82, 99 * kKiB, 6 * kMiB, 24 * kGiB, false},
    {"RTX 4090", 8, 9, 128, 99 * kKiB, 72 * kMiB, 24 * kGiB, false},
    {"H200", 9, 0, 132, 227 * kKiB, 50 * kMiB, 141 * kGiB, false},
    {"B200", 10, 0, 148, 227 * kKiB, 126 * kMiB, 180 * kGiB, false},
    {"RTX 5090", 12, 0, 170, 99 * kKiB, 96 * kMiB, 32 * kGiB, false},
    {"GB10", 12, 1, 48, 99 * kKiB, 24 * kMiB, 128 * kGiB, true},
};

Config shape(int64_t C, int64_t Hq, int64_t Hkv, int64_t D, int64_t F, bool norms, bool bias,
             int64_t V = 151936) {
  Config c;
  c.C = C, c.L = 2, c.Hq = Hq, c.Hkv = Hkv, c.D = D, c.F = F, c.V = V;
  c.qk_norm = norms, c.qkv_bias = bias;
  c.tied = true;
  c.max_positions = 40960;
  return c;
}

const SceneShape kShapes[] = {
    {"Qwen3-4B", shape(2560, 32, 8, 128, 9728, true, false)},
    {"Qwen3-0.6B", shape(1024, 16, 8, 128, 3072, true, false)},
    {"Qwen3-8B", shape(4096, 32, 8, 128, 12288, true, false)},
    {"Qwen3-32B", shape(5120, 64, 8, 128, 25600, true, false)},
    {"Qwen2.5-0.5B", shape(896, 14, 2, 64, 4864, false, true)},
    {"Qwen2.5-1.5B", shape(1536, 12, 2, 128, 8960, false, true)},
    {"SmolLM2-135M", shape(576, 9, 3, 64, 1536, false, false, 49152)},
};

// Weights of a shape: places in memory, nothing in them.
Model blank_model(Backend& be, const Config& c) {
  WeightLayout layout;
  layout.embed = DType::bf16;
  layout.linear.assign(size_t(c.L) * kBlockLinears, LinearLayout{});
  Arena measure("weights");
  make_weights(measure, be, c, layout);
  Model m;
  m.config = c;
  m.memory = Arena("weights", be.allocate(measure.peak(), "weights"));
  m.weights = make_weights(m.memory, be, c, layout);
  return m;
}

// The parameters of a shape, all zero.
class ZeroSource final : public TensorSource {
 public:
  explicit ZeroSource(const Config& c) : TensorSource(Virtual{}, "zeros", infos_of(c), {}) {}
  void read(const TensorInfo&, uint64_t, std::span<std::byte> out) const override {
    std::memset(out.data(), 0, out.size());
  }

 private:
  static std::vector<TensorInfo> infos_of(const Config& c) {
    std::vector<TensorInfo> infos;
    for (const ParamSpec& p : parameter_table(c)) {
      if (p.slot == ParamSlot::head) continue;  // tied
      TensorInfo t;
      t.name = p.name, t.shape = p.shape;
      t.dtype = p.is_matrix() ? DType::bf16 : DType::f32;
      t.n_bytes = uint64_t(t.numel()) * dtype_bytes(t.dtype);
      infos.push_back(std::move(t));
    }
    return infos;
  }
};

EngineOptions engine_options(int64_t context, Cache cache) {
  EngineOptions o;
  o.context = context, o.chunk = 0;
  o.compute = DType::bf16;
  o.cache = cache == Cache::f8 ? DType::f8_e4m3 : DType::bf16;
  return o;
}

}  // namespace

std::span<const FakeGpu> fake_gpus() { return kGpus; }
std::span<const SceneShape> scene_shapes() { return kShapes; }

std::vector<Scene> decode_scenes(const FakeGpu& gpu, const Config& c,
                                 std::span<const int64_t> sequences, Cache cache) {
  install_fake_gpu(gpu);
  const auto backend = make_cuda_backend();
  const Model model = blank_model(*backend, c);
  BatchEngine engine(*backend, model, engine_options(64, cache), std::ranges::max(sequences));
  std::vector<Scene> scenes;
  const int32_t token = 1;
  for (int64_t s = 0; s < engine.sequences(); ++s) engine.feed(s, {&token, 1});
  for (const int64_t n : sequences) {
    std::vector<DecodeStep> steps(static_cast<size_t>(n));
    for (int64_t s = 0; s < n; ++s) steps[size_t(s)] = {s, token, {}, 0};
    take_fake_launches();
    engine.step(steps);
    scenes.push_back({fmt::format("decode {}", n), take_fake_launches()});
  }
  return scenes;
}

std::vector<Scene> prompt_scenes(const FakeGpu& gpu, const Config& c,
                                 std::span<const int64_t> tokens, Cache cache) {
  install_fake_gpu(gpu);
  const auto backend = make_cuda_backend();
  const Model model = blank_model(*backend, c);
  BatchEngine engine(*backend, model, engine_options(std::ranges::max(tokens), cache), 1);
  std::vector<Scene> scenes;
  for (const int64_t n : tokens) {
    engine.truncate(0, 0);
    take_fake_launches();
    engine.feed(0, std::vector<int32_t>(size_t(n), 1));
    scenes.push_back({fmt::format("prompt {}", n), take_fake_launches()});
  }
  return scenes;
}

std::vector<Scene> training_scenes(const FakeGpu& gpu, const Config& c,
                                   std::span<const int64_t> tokens) {
  install_fake_gpu(gpu);
  const auto backend = make_cuda_backend();
  const ZeroSource source(c);
  TrainSettings settings;
  settings.compute = DType::bf16;
  set_capacity(settings, std::ranges::max(tokens), 1);
  TrainState state(*backend, c, source, settings);
  Trainer trainer(state);
  std::vector<Scene> scenes;
  for (const int64_t n : tokens) {
    const PackedBatch batch = random_batch({n}, c.V, 1);
    take_fake_launches();
    trainer.step({&batch, 1});
    scenes.push_back({fmt::format("training {}", n), take_fake_launches()});
  }
  return scenes;
}

}  // namespace nibble::test
