// SPDX-License-Identifier: MIT
// Held-out probes from the grammar, as a file for `check --probes`.
#pragma once
#include <cstdint>
#include <string>

#include "mini/corpus.h"

namespace nibble {

struct ProbeOptions {
  std::string name = "mini";
  uint64_t seed = 1;
  IdentityTexts identity;  // what identity probes expect after the fine-tune
};
// JSON. Every prompt is a held-out phrasing, with held-out values where values are free; none is,
// letters and digits compared, a prompt that training could contain.
std::string make_probes(const ProbeOptions& options);

}  // namespace nibble
