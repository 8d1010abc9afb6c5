// SPDX-License-Identifier: MIT
// A decorator that notes every op that went through the tested backend (op_coverage.h).
#pragma once
#include <memory>

#include "backend/backend.h"

namespace nibble::test {

std::unique_ptr<Backend> noting_ops(std::unique_ptr<Backend> tested);

// `tested` itself, or with NIBBLE_OPS_COVERAGE inside such a decorator.
std::unique_ptr<Backend> with_op_coverage(std::unique_ptr<Backend> tested);

}  // namespace nibble::test
