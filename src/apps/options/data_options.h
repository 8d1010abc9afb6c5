// SPDX-License-Identifier: MIT
// The flags of nibble data, and which action each belongs to.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "apps/options/options.h"
#include "data/sets.h"
#include "mini/corpus.h"
#include "mini/probes.h"

namespace nibble {

struct DataOptions {
  std::string action;
  std::vector<std::string> inputs;
  std::filesystem::path out, held_out, probes;
  uint64_t seed = 20260226;
  std::optional<int64_t> size;
  int32_t threads = 0, vocab_size = 3072;
  double identity_share = IdentitySetOptions().identity_share,
         disambiguation_share = IdentitySetOptions().disambiguation_share, held_out_share = 0.1,
         conversation_share = 0;
  std::string identity_zh = IdentityTexts().zh, identity_en = IdentityTexts().en,
              name = ProbeOptions().name;
  std::optional<std::string> target;
  SameBy same = SameBy::line;
  bool strict_data = false;
  const Fields* fields = nullptr;  // to tell what was given

  void visit_fields(Fields& f);
  // Throws UsageError for an unknown action, or a flag that says nothing to this one.
  void check() const;

  ExtraKeys extra() const { return strict_data ? ExtraKeys::refuse : ExtraKeys::count; }
  IdentityTexts identity() const { return {identity_zh, identity_en}; }
};

}  // namespace nibble
