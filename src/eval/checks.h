// SPDX-License-Identifier: MIT
// Is this model, in this program, on this machine, sound?
#pragma once
#include <iosfwd>

#include "eval/check_options.h"

namespace nibble {

// Runs every check that is asked for, or finite, kv and paths where none is. A line each goes to
// `out`, and JSON where the options name a file. Returns whether all passed. Throws UsageError
// before anything is loaded when an output would replace an input.
bool run_checks(const CheckOptions& options, std::ostream& out);

}  // namespace nibble
