// SPDX-License-Identifier: MIT
#include "support/staged_backend.h"

namespace nibble::test {

std::string StagedBackend::name() const { return "staged " + device().name(); }

}  // namespace nibble::test
