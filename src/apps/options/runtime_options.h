// SPDX-License-Identifier: MIT
// The flags that say how a model is run, the same in every command that runs one.
#pragma once
#include <string>

#include "apps/options/options.h"
#include "runtime/runtime.h"

namespace nibble {

void visit_fields(RuntimeOptions& o, Fields& f);
void visit_fields(CacheOptions& o, Fields& f);

// Flags that several option structs have.
void add_compute_type(Fields& f, FloatChoice& compute, const std::string& what_auto_is);
void add_scale_rule(Fields& f, ScaleRule& rule, const std::string& help);

}  // namespace nibble
