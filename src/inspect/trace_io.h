// SPDX-License-Identifier: MIT
// What `nibble trace` reads and writes.
#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "formats/tensor_source.h"

namespace nibble {

struct TraceInput {
  int64_t B = 0, T = 0;
  std::vector<int64_t> ids;     // [B, T]
  std::vector<int64_t> labels;  // [B, T], or empty
};
// int64 (or int32) input_ids and, optionally, labels; other tensors of the file are not looked at.
TraceInput read_trace_input(const std::filesystem::path& file);

struct TraceTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::span<const float> values;
};
void write_trace(const std::filesystem::path& out, std::span<const TraceTensor> tensors,
                 const TensorSource::Metadata& metadata);

struct TopToken {
  int32_t id;
  float logit;
  double probability;
};
// The k largest logits, largest first; equal ones by id. NaN comes last.
std::vector<TopToken> top_tokens(std::span<const float> logits, int64_t k);

std::string quoted_text(std::string_view text);  // in quotes, line ends and the like as \n

}  // namespace nibble
