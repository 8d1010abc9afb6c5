// SPDX-License-Identifier: MIT
// Private to formats/: what every container demands of a name and a shape.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "core/dtype.h"

namespace nibble {

constexpr size_t kMaxNameBytes = 4096;
constexpr size_t kMaxFileRank = 8;
// Far above any model (a 4-billion-parameter one has hundreds); bounds what a bad file can cost.
constexpr uint64_t kMaxTensors = 1u << 20;

bool is_utf8(std::string_view text);

// Payload bytes of a tensor. nullopt when a dimension is negative or the size does not fit:
// zero dimensions count as one in that check, so that no partial product overflows either.
std::optional<uint64_t> shape_bytes(std::span<const int64_t> shape, DType dtype);

}  // namespace nibble
