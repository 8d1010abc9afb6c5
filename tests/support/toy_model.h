// SPDX-License-Identifier: MIT
// A small random model made in memory, for tests that need a model but no file of their own.
#pragma once
#include <cmath>
#include <filesystem>

#include <gtest/gtest.h>
#include <unistd.h>

#include "core/rng.h"
#include "formats/safetensors.h"
#include "model/load.h"
#include "model/params.h"

namespace nibble::test {

inline Config toy_config() {
  Config c;
  c.C = 64;
  c.L = 3;
  c.Hq = 4;
  c.Hkv = 2;
  c.D = 16;
  c.F = 96;
  c.V = 160;
  c.rope.theta = 1e4;
  c.tied = true;
  c.max_positions = 512;
  return c;
}

// Norms of heads, biases, or neither.
enum class ToyFamily { qwen3, qwen2, llama };
inline Config of_family(Config c, ToyFamily family) {
  c.qk_norm = family == ToyFamily::qwen3;
  c.qkv_bias = family == ToyFamily::qwen2;
  return c;
}
// The toy in the shape of other families: seven, and three queries a key head, and a width that is
// no multiple of 64.
inline Config toy_qwen2_config() {
  Config c = of_family(toy_config(), ToyFamily::qwen2);
  c.Hq = 7, c.Hkv = 1, c.C = 112;
  return c;
}
inline Config toy_llama_config() {
  Config c = of_family(toy_config(), ToyFamily::llama);
  c.Hq = 9, c.Hkv = 3, c.C = 144;
  return c;
}

// One element of a toy's parameter from a normally distributed number. Key biases of real models
// reach hundreds in the pairs that turn slowest: the toy has such a pair in each head.
inline double toy_value(const Config& c, const ParamSpec& p, size_t i, double z) {
  if (p.is_matrix()) return z * 2.0 / std::sqrt(double(p.shape[1]));
  if (p.slot != ParamSlot::qkv_bias) return 1.0 + 0.1 * z;
  const bool key = p.row_offset == c.Hq * c.D, slowest = int64_t(i) % (c.D / 2) == c.D / 2 - 1;
  return key && slowest ? 145.0 + z : 0.5 * z;
}

// Writes the toy's weights (fp32, head left out when tied) as one safetensors file. Weights are
// large enough for logits to be far apart: greedy ids then do not hang on rounding.
inline void write_toy_weights(const Config& c, const std::filesystem::path& file,
                              uint64_t seed = 1) {
  std::vector<TensorInfo> infos;
  const auto table = parameter_table(c);
  for (const ParamSpec& p : table) {
    if (p.slot == ParamSlot::head && c.tied) continue;
    TensorInfo info;
    info.name = p.name;
    info.dtype = DType::f32;
    info.shape = p.shape;
    infos.push_back(info);
  }
  SafetensorsWriter writer(file, infos);
  for (const ParamSpec& p : table) {
    if (p.slot == ParamSlot::head && c.tied) continue;
    std::vector<float> values(size_t(p.numel()));
    const uint64_t stream = uint64_t(&p - table.data());
    for (size_t i = 0; i < values.size(); ++i) {
      const double z = normal_pair(philox(seed, stream, i))[0];
      values[i] = float(toy_value(c, p, i, z));
    }
    writer.append(std::as_bytes(std::span(values)));
  }
  writer.finish();
}

struct ToyModel {
  std::unique_ptr<TensorSource> source;
  Model model;
};

inline ToyModel load_toy(Backend& backend, const Config& c, const LoadOptions& options = {},
                         uint64_t seed = 1) {
  const auto file =
      std::filesystem::path(testing::TempDir()) /
      ("toy-" + std::to_string(::getpid()) + "-" + std::to_string(c.V) + ".safetensors");
  write_toy_weights(c, file, seed);
  ToyModel t;
  t.source = open_tensor_source(file);
  t.model = load_model(backend, c, *t.source, options);
  std::filesystem::remove(file);
  return t;
}

inline std::vector<int32_t> random_tokens(int64_t n, int64_t vocabulary, uint64_t seed) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < n; ++i)
    ids.push_back(int32_t(philox(seed, 7, uint64_t(i))[0] % uint64_t(vocabulary)));
  return ids;
}

}  // namespace nibble::test
