// SPDX-License-Identifier: MIT
#include "optim/adamw.h"

#include "optim/moment_part.h"

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

std::array<MomentRange, 3> moment_part(MomentFormat format, int64_t n, int64_t begin,
                                       int64_t count) {
  if (begin % kMomentBlock != 0 || (count % kMomentBlock != 0 && begin + count != n) || begin < 0 ||
      begin + count > n) {
    throw_internal("moments {}..{} of {}", begin, begin + count, n);
  }
  const auto blocks_of = [](int64_t elements) {
    return size_t((elements + kMomentBlock - 1) / kMomentBlock);
  };
  const size_t first = blocks_of(begin), blocks = blocks_of(count), all = blocks_of(n);
  std::array<MomentRange, 3> ranges;
  size_t whole = 0, part = 0;  // where a section begins
  // `per_block` bytes of every block.
  const auto section = [&](size_t i, size_t per_block) {
    ranges[i] = {whole + first * per_block, part, blocks * per_block};
    whole += all * per_block;
    part += blocks * per_block;
  };
  switch (format) {
    case MomentFormat::f32: return {{{size_t(begin) * 4, 0, size_t(count) * 4}}};
    case MomentFormat::bf16: return {{{size_t(begin) * 2, 0, size_t(count) * 2}}};
    case MomentFormat::int8:
    case MomentFormat::int8_linear:
      section(0, kMomentBlock);
      section(1, 4);
      break;
    case MomentFormat::nvfp4:
      section(0, kMomentBlock / 2);
      section(1, kMomentBlock / 16);
      section(2, 4);
      break;
  }
  return ranges;
}

}  // namespace nibble
