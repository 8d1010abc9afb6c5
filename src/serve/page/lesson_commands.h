// SPDX-License-Identifier: MIT
// The commands that a lesson comes to, word by word.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "runtime/model_paths.h"
#include "serve/page/lesson.h"

namespace nibble {

constexpr int64_t kLessonGates = 6;  // on the way

// What the server's own model was opened with.
struct LessonBase {
  ModelOptions model;             // as it was named at start
  std::filesystem::path weights;  // which are these
  std::string device = "auto";
  int32_t threads = 0;
  std::string chat_template = {};  // empty: the model's own
  // Its linear layers are dense here, and its file can hold them so: then it is trained so, too, or
  // what answers afterwards would not be what was trained.
  bool dense = false;
};

struct LessonPlace {
  std::filesystem::path folder;       // of the lesson: rows.jsonl, keep.jsonl, probes.json
  std::filesystem::path runs;         // the folder of runs
  std::string run;                    // the name of the run to make there
  std::filesystem::path output;       // the trained model
  std::filesystem::path checkpoints;  // to go on from; empty: it begins
  int64_t window = 64;
};

std::vector<std::string> train_words(const Lesson& lesson, const LessonBase& base,
                                     const LessonPlace& place);
std::vector<std::string> plan_words(const Lesson& lesson, const LessonBase& base, int64_t window);
// Loss and divergence on a text of nobody's, beside the base; results go to `json`.
std::vector<std::string> check_words(const std::filesystem::path& model, const LessonBase& base,
                                     const std::filesystem::path& text,
                                     const std::filesystem::path& json);

}  // namespace nibble
