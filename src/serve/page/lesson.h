// SPDX-License-Identifier: MIT
// What is to be taught: rows, what is to stay, settings. As a browser sends it, within bounds, and
// as lesson.json keeps it.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace nibble {

// A question with its answer, or a line of JSONL for what is more than that.
struct LessonRow {
  std::string question, answer;
  std::string line;  // not empty: this, and the others are for show
};

enum class LessonKeep { nothing, prompts, own_text };

struct Lesson {
  std::string from;  // an earlier lesson, whose model learns on; empty: the server's own does
  std::vector<LessonRow> rows;
  LessonKeep keep = LessonKeep::nothing;
  std::vector<std::string> prompts;  // kept: the model answers these as it did
  int64_t own_tokens = 0;            // kept: so much text of its own
  int64_t steps = 0;                 // of the defaults: at least, where nothing is said
  int64_t batch_size = 0;
  double lr = 0;
};

struct LessonLimits {
  static constexpr size_t kRows = 5000, kPrompts = 500, kText = 16 << 10;
  static constexpr int64_t kOwnTokens = 200000, kSteps = 100000, kBatch = 256;
};

// `need_rows`: there must be some. What is not said is as default_lesson() has it. Throws ApiError.
Lesson read_lesson(const nlohmann::ordered_json& body, const Lesson& defaults, bool need_rows);
nlohmann::ordered_json lesson_json(const Lesson& lesson);

// Settings that suit a model: small ones learn at high rates. Steps follow from the rows.
Lesson default_lesson(int64_t parameters);
// So many that each row is seen a dozen times, and never fewer than `least`.
int64_t steps_for(const Lesson& lesson, int64_t least);
// How often each row is seen. Where something is kept, every second sample is.
double passes_of(const Lesson& lesson);

std::string keep_name(LessonKeep keep);

}  // namespace nibble
