// SPDX-License-Identifier: MIT
// Real models, which are no part of the repository: $NIBBLE_WEIGHTS, or the folder that
// ../shared/weights/fetch.sh fills. A test that does not find one skips and says so.
#pragma once
#include <cstdlib>
#include <filesystem>
#include <string>

namespace nibble::test {

inline std::filesystem::path weights_dir() {
  if (const char* w = std::getenv("NIBBLE_WEIGHTS")) return w;
  const char* home = std::getenv("HOME");
  return std::filesystem::path(home ? home : "/root") / ".cache" / "nibble" / "weights";
}

struct RealModel {
  const char* name;  // of the golden files
  const char* file;
};
inline constexpr RealModel kSmolLm2{"smollm2-135m", "SmolLM2-135M-Instruct.Q4_1.gguf"};
inline constexpr RealModel kQwenHalf{"qwen2.5-coder-0.5b",
                                     "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"};
inline constexpr RealModel kQwenOneAndHalf{"qwen2.5-coder-1.5b",
                                           "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"};

}  // namespace nibble::test

// Declares `variable` or skips the test with the reason.
#define NIBBLE_WEIGHTS_OR_SKIP(variable, model)                                                \
  const std::filesystem::path variable = ::nibble::test::weights_dir() / (model).file;         \
  if (!std::filesystem::exists(variable))                                                      \
  GTEST_SKIP() << variable.string() << " is absent (real weights; ../shared/weights/fetch.sh " \
               << (model).name << " fetches them, NIBBLE_WEIGHTS names another folder)"
