// SPDX-License-Identifier: MIT
// --device: auto, cpu, cuda or cuda:N; --threads.
#pragma once
#include <string>

#include "apps/options/options.h"
#include "runtime/device.h"

namespace nibble {

std::string parse_value(const std::string& text, Device& out);
std::string toml_value(const Device& v);
template <>
struct FieldKindOf<Device> {
  static constexpr FieldKind value = FieldKind::text;
};

void add_device(Fields& f, Device& device, int32_t& threads);

}  // namespace nibble
