// SPDX-License-Identifier: MIT
// A quick hash for tables and for telling contents apart; not for anything an adversary makes.
#pragma once
#include <cstdint>
#include <string_view>

namespace nibble {

// 64-bit hash of a few bytes; the same on every little-endian machine and in every version.
uint64_t hash_bytes(std::string_view bytes, uint64_t seed);

}  // namespace nibble
