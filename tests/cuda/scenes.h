// SPDX-License-Identifier: MIT
// What the backend launches for a model's work on a GPU, without one: steps of decoding, prompts,
// training steps through the real wiring, on the fake runtime.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "fake_gpu.h"
#include "model/config.h"

namespace nibble::test {

struct Scene {
  std::string name;  // "decode 8", "prompt 512", "training 96"
  std::vector<FakeLaunch> launches;
};

struct SceneShape {
  std::string name;
  Config config;  // two layers: the first and the last are all kinds there are
};

std::span<const FakeGpu> fake_gpus();        // one of each compute capability
std::span<const SceneShape> scene_shapes();  // the first: Qwen3-4B
enum class Cache { bf16, f8 };
// Throws what the backend throws where a launch would fail.
std::vector<Scene> decode_scenes(const FakeGpu& gpu, const Config& config,
                                 std::span<const int64_t> sequences, Cache cache = Cache::bf16);
std::vector<Scene> prompt_scenes(const FakeGpu& gpu, const Config& config,
                                 std::span<const int64_t> tokens, Cache cache = Cache::bf16);
std::vector<Scene> training_scenes(const FakeGpu& gpu, const Config& config,
                                   std::span<const int64_t> tokens);

}  // namespace nibble::test
