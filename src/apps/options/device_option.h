// SPDX-License-Identifier: MIT
// --device: auto, cpu, cuda, cuda:N, or several of these; --threads.
#pragma once
#include <string>

#include "apps/options/options.h"
#include "runtime/device.h"

namespace nibble {

std::string parse_value(const std::string& text, Device& out);
std::string parse_value(const std::string& text, Devices& out);
std::string toml_value(const Device& v);
std::string toml_value(const Devices& v);
template <>
struct FieldKindOf<Device> {
  static constexpr FieldKind value = FieldKind::text;
};

template <>
struct FieldKindOf<Devices> : FieldKindOf<Device> {};

void add_device(Fields& f, Device& device, int32_t& threads);
// Where more than one may answer; a command that runs on one refuses the others.
void add_devices(Fields& f, Devices& devices, int32_t& threads);

}  // namespace nibble
