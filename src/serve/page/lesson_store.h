// SPDX-License-Identifier: MIT
// Lessons on disk, a folder each: what was asked for, and under which names it runs. How a run
// stands is in its own folder, not here.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "serve/page/lesson.h"

namespace nibble {

struct StoredLesson {
  std::string name, created_utc;
  Lesson lesson;
  int64_t window = 64;
  std::vector<std::string> runs;  // the first, and those that went on with it
  std::string output;   // the trained model, below its folder: "model" or "model/model.dat"
  std::string kept_as;  // a name in the folder of models; empty: it lies here
};

class LessonStore {
 public:
  explicit LessonStore(std::filesystem::path folder) : folder_(std::move(folder)) {}

  // Makes a folder with the next free number, where `taken` has nothing of that name either.
  // Throws FormatError.
  std::string make(const std::filesystem::path& taken) const;
  void write(const StoredLesson& lesson) const;
  StoredLesson read(const std::string& name) const;  // ApiError (404), FormatError
  std::vector<StoredLesson> all() const;  // the newest first; what is damaged is left out
  std::filesystem::path folder(const std::string& name) const;  // ApiError (404)
  // Into .trash beside the others.
  void discard(const std::string& name) const;

 private:
  std::filesystem::path folder_;
};

}  // namespace nibble
