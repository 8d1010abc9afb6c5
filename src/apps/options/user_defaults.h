// SPDX-License-Identifier: MIT
// What holds for a person's commands where neither the line nor a --run-config says otherwise: the
// environment variable NIBBLE_MODEL, and the keys of $XDG_CONFIG_HOME/nibble/config.toml (or
// ~/.config/nibble/config.toml). The variable wins over the file.
#pragma once
#include <filesystem>
#include <string>

#include "apps/options/options.h"

namespace nibble {

// Empty where no home is known; the file need not exist.
std::filesystem::path user_config_file();

// Where programs keep what they made themselves: $XDG_STATE_HOME/nibble, or ~/.local/state/nibble.
// Empty where no home is known.
std::filesystem::path user_state_folder();

// Sets what is still open. `known` says whether any command has a key: one that none has is a
// mistake, one of other commands is theirs. Throws UsageError, FormatError.
using KeyIsKnown = std::function<bool(const std::string& key)>;
void apply_user_defaults(Fields& fields, const std::string& command, const KeyIsKnown& known,
                         const ExplainUnknown& explain);

}  // namespace nibble
