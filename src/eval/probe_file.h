// SPDX-License-Identifier: MIT
// The probe file of check --probes and train --probes (docs/probes.md). A strict reader: unknown
// keys, rules that say nothing and ids given twice are errors.
#pragma once
#include <filesystem>
#include <string>
#include <string_view>

#include "eval/probe.h"

namespace nibble {

// Throws FormatError that names the file, the probe and the key.
ProbeSet parse_probes(std::string_view text, const std::string& name);

struct ProbeFile {
  ProbeSet set;
  std::string hash;  // SHA-256 of the file's bytes, hexadecimal
};
ProbeFile read_probes(const std::filesystem::path& file);

}  // namespace nibble
