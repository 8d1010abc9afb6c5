// SPDX-License-Identifier: MIT
// libFuzzer target: bytes as config.json; after an 'm', as further members of a good one.
#include <string>

#include "core/error.h"
#include "model/params.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string text(reinterpret_cast<const char*>(data), size);
  if (!text.empty() && text[0] == 'm') {
    text = R"({"hidden_size":64,"num_hidden_layers":2,"num_attention_heads":4,"head_dim":16,)"
           R"("intermediate_size":96,"vocab_size":160,"rms_norm_eps":1e-6,"rope_theta":1e4,)" +
           text.substr(1) + "}";
  }
  try {
    const nibble::Config c = nibble::parse_config(text, "config.json");
    // A config that is accepted has a parameter table of sane shapes.
    for (const nibble::ParamSpec& p : nibble::parameter_table(c)) {
      if (p.numel() <= 0) __builtin_trap();
    }
    // And frequencies that are numbers, never rising.
    const nibble::RopeFrequencies f = nibble::rope_frequencies(c.rope, c.D);
    for (size_t i = 0; i < f.turns.size(); ++i) {
      if (!(f.turns[i] >= 0) || !(f.turns[i] <= (i ? f.turns[i - 1] : 1) * (1 + 1e-12))) {
        __builtin_trap();
      }
    }
  } catch (const nibble::FormatError&) {
  }
  return 0;
}
