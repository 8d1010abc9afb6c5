// SPDX-License-Identifier: MIT
// The paths below /api/lessons.
#pragma once
#include <string>
#include <vector>

#include "serve/api/api_call.h"
#include "serve/page/lessons.h"

namespace nibble {

// Throws ApiError.
ApiResponse answer_lessons(Lessons& lessons, const ApiCall& call,
                           const std::vector<std::string>& parts);

}  // namespace nibble
