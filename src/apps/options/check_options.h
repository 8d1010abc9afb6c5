// SPDX-License-Identifier: MIT
// The flags of `nibble check`.
#pragma once
#include "apps/options/options.h"
#include "eval/check_options.h"

namespace nibble {

void visit_fields(CheckOptions& o, Fields& f);

}  // namespace nibble
