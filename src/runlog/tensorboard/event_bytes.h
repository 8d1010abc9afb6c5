// SPDX-License-Identifier: MIT
// What a TensorBoard event file is made of: records with checksums (TFRecord) around events in
// protobuf's encoding. Only the few fields that curves need.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace nibble {

uint32_t crc32c(std::string_view bytes);         // Castagnoli's polynomial
uint32_t masked_crc32c(std::string_view bytes);  // as TFRecord stores it
// Length, its checksum, the bytes, theirs.
std::string tfrecord(std::string_view bytes);

// Events: the first of a file; the beginning of a run at a step, from which on older values do not
// count; a value of a curve.
std::string version_event(double wall_time);
std::string start_event(double wall_time, int64_t step);
std::string scalar_event(double wall_time, int64_t step, std::string_view tag, float value);

}  // namespace nibble
