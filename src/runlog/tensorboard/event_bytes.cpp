// SPDX-License-Identifier: MIT
#include "runlog/tensorboard/event_bytes.h"

#include <array>
#include <bit>

namespace nibble {
namespace {

constexpr std::array<uint32_t, 256> crc_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t c = i;
    for (int k = 0; k < 8; ++k) c = (c & 1) != 0 ? 0x82f63b78u ^ (c >> 1) : c >> 1;
    table[i] = c;
  }
  return table;
}

void put_fixed(std::string& out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out += char(uint8_t(value >> (8 * i)));
}
void put_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += char(uint8_t(value | 0x80));
  out += char(uint8_t(value));
}
enum Wire : uint64_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };
void put_key(std::string& out, uint64_t field, Wire wire) { put_varint(out, field << 3 | wire); }
void put_bytes(std::string& out, uint64_t field, std::string_view value) {
  put_key(out, field, Wire::bytes);
  put_varint(out, value.size());
  out += value;
}

// Event { double wall_time = 1; int64 step = 2; ... }
std::string event_head(double wall_time, int64_t step) {
  std::string out;
  put_key(out, 1, Wire::fixed64);
  put_fixed(out, std::bit_cast<uint64_t>(wall_time), 8);
  if (step != 0) {
    put_key(out, 2, Wire::varint);
    put_varint(out, uint64_t(step));
  }
  return out;
}

}  // namespace

uint32_t crc32c(std::string_view text) {
  static constexpr std::array<uint32_t, 256> kTable = crc_table();
  uint32_t c = ~0u;
  for (const char x : text) c = kTable[(c ^ uint8_t(x)) & 0xff] ^ (c >> 8);
  return ~c;
}

uint32_t masked_crc32c(std::string_view text) { return std::rotr(crc32c(text), 15) + 0xa282ead8u; }

std::string tfrecord(std::string_view text) {
  std::string out;
  put_fixed(out, text.size(), 8);
  put_fixed(out, masked_crc32c(out), 4);
  out += text;
  put_fixed(out, masked_crc32c(text), 4);
  return out;
}

std::string version_event(double wall_time) {
  std::string out = event_head(wall_time, 0);
  put_bytes(out, 3, "brain.Event:2");  // file_version
  return out;
}

std::string start_event(double wall_time, int64_t step) {
  std::string log;  // SessionLog { status = 1 }, START is 1
  put_key(log, 1, Wire::varint);
  put_varint(log, 1);
  std::string out = event_head(wall_time, step);
  put_bytes(out, 7, log);
  return out;
}

std::string scalar_event(double wall_time, int64_t step, std::string_view tag, float value) {
  std::string one;  // Summary.Value { tag = 1; simple_value = 2 }
  put_bytes(one, 1, tag);
  put_key(one, 2, Wire::fixed32);
  put_fixed(one, std::bit_cast<uint32_t>(value), 4);
  std::string summary;  // Summary { repeated value = 1 }
  put_bytes(summary, 1, one);
  std::string out = event_head(wall_time, step);
  put_bytes(out, 5, summary);
  return out;
}

}  // namespace nibble
