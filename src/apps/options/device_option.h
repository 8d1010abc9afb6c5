// SPDX-License-Identifier: MIT
// --device: auto, cpu, cuda or cuda:N.
#pragma once
#include <string>

#include "apps/options/options.h"

namespace nibble {

struct Device {
  enum Kind { automatic, cpu, cuda };
  Device() = default;
  Device(Kind k, int i = 0) : kind(k), index(i) {}  // Device::cpu reads like an enumerator
  bool operator==(const Device&) const = default;

  Kind kind = automatic;
  int index = 0;  // of the GPU
};

std::string parse_value(const std::string& text, Device& out);
std::string toml_value(const Device& v);
template <>
struct FieldKindOf<Device> {
  static constexpr FieldKind value = FieldKind::text;
};

void add_device(Fields& f, Device& device, int32_t& threads);

// What `wanted` stands for on this machine, never automatic.
Device resolve_device(const Device& wanted);
// The same, and where a GPU could have been taken but was not the log says why.
Device choose_device(const Device& wanted);

}  // namespace nibble
