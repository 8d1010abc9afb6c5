// SPDX-License-Identifier: MIT
// Whether stored numbers are numbers: a look at exponents, fast enough for every byte that is
// loaded.
#pragma once
#include <cstddef>
#include <optional>
#include <span>

#include "core/dtype.h"

namespace nibble {

// The first element of `bytes` that is NaN or infinite; types without either have none.
std::optional<size_t> first_not_finite(DType type, std::span<const std::byte> bytes);

}  // namespace nibble
