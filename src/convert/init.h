// SPDX-License-Identifier: MIT
// A model with random weights for any config.json, streamed to disk.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>

#include "core/dtype.h"
#include "core/thread_pool.h"
#include "formats/container.h"
#include "model/config.h"

namespace nibble {

// Element i of a normal(0, sd) tensor, for i in [begin, begin + n). The value depends on seed,
// stream and i alone. Every value is exact in bf16 and in fp16, so all files of one seed agree.
void random_normal(uint64_t seed, uint64_t stream, uint64_t begin, int64_t n, float sd, float* out);

struct InitSummary {
  size_t entries = 0;
  uint64_t payload_bytes = 0;
  int64_t parameters = 0;  // a tied head counts once
};

// Matrices are normal(0, initializer_range), norms are 1. A tied head is left out, except in a
// .dat, which stores a copy. `dtype` is f16, bf16 or f32; by default what such files hold:
// f16 in a .dat, bf16 elsewhere. A directory must exist.
InitSummary init_weights(const Config& config, const std::filesystem::path& out,
                         Container container, std::optional<DType> dtype, uint64_t seed,
                         ThreadPool& pool);

}  // namespace nibble
