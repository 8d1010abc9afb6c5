// SPDX-License-Identifier: MIT
// Everyday questions in two languages: those a lesson keeps where nobody says otherwise, and
// others, which it neither teaches nor keeps, to see what it cost.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "serve/page/lesson.h"

namespace nibble {

std::span<const std::string_view> kept_questions();
// Of the others, those that are not in the lesson, whatever their spelling.
std::vector<std::string> other_questions(const Lesson& lesson);
// The lesson's own prompts without those it teaches.
std::vector<std::string> prompts_not_taught(const Lesson& lesson);

}  // namespace nibble
