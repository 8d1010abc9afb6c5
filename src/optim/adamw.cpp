// SPDX-License-Identifier: MIT
#include "optim/adamw.h"

#include "core/error.h"

namespace nibble {
namespace {

constexpr std::pair<std::string_view, MomentFormat> kFormats[] = {
    {"int8", MomentFormat::int8},
    {"fp32", MomentFormat::f32},
    {"bf16", MomentFormat::bf16},
    {"nvfp4", MomentFormat::nvfp4},
    {"int8-linear", MomentFormat::int8_linear},
};

}  // namespace

std::string_view moment_format_name(MomentFormat format) {
  for (const auto& [n, f] : kFormats) {
    if (f == format) return n;
  }
  return "?";
}

std::string_view master_rounding_name(MasterRounding rounding) {
  return rounding == MasterRounding::stochastic ? "stochastic" : "nearest";
}

size_t moment_bytes(MomentFormat format, int64_t n) {
  const int64_t blocks = (n + kMomentBlock - 1) / kMomentBlock;
  switch (format) {
    case MomentFormat::f32: return size_t(n) * 4;
    case MomentFormat::bf16: return size_t(n) * 2;
    case MomentFormat::int8:
    case MomentFormat::int8_linear: return size_t(blocks * (kMomentBlock + 4));
    // Codes, one E4M3 scale per 16 elements, one fp32 scale per block.
    case MomentFormat::nvfp4: return size_t(blocks * (kMomentBlock / 2 + kMomentBlock / 16 + 4));
  }
  throw_internal("moment format {}", int(format));
}

}  // namespace nibble
