// SPDX-License-Identifier: MIT
// Teaching: lessons, the trainings behind them, and the model that comes of one beside the base.
#pragma once
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "serve/api/model_shelf.h"
#include "serve/page/lesson_commands.h"
#include "serve/page/lesson_plan.h"
#include "serve/page/lesson_store.h"
#include "serve/page/tar_stream.h"
#include "serve/page/trainings.h"

namespace nibble {

// Everything the page reads or writes lies in one of these.
struct PageFolders {
  std::filesystem::path work;    // lessons
  std::filesystem::path runs;    // the log of runs
  std::filesystem::path models;  // what was kept
};

struct TeachSettings {
  LessonBase base;
  ChildProgram program;
  // Opens a model as the server's own was opened.
  std::function<std::shared_ptr<RunningModel>(const std::filesystem::path&, const std::string&)>
      open;
};

class Lessons {
 public:
  using Json = nlohmann::ordered_json;
  // `shelf` outlives it.
  Lessons(ModelShelf& shelf, PageFolders folders, TeachSettings settings);

  // All of these throw ApiError.
  Json overview() const;
  Json plan(const std::string& body) const;
  Json start(const std::string& body);
  Json status(const std::string& name) const;
  Json stop(const std::string& name) const;
  Json resume(const std::string& name);
  Json load(const std::string& name);
  Json unload(const std::string& name);
  Json check(const std::string& name);
  Json keep(const std::string& name, const std::string& body);
  Json discard(const std::string& name);
  TarStream export_of(const std::string& name) const;
  // Of the lesson that is being trained; empty: none is. Throws nothing.
  std::string training() const noexcept;

 private:
  std::filesystem::path file_of(const StoredLesson& lesson, const char* file) const;
  std::filesystem::path model_folder(const StoredLesson& lesson) const;
  std::filesystem::path model_path(const StoredLesson& lesson) const;
  LessonStanding standing(const StoredLesson& lesson) const;
  bool is_loaded(const StoredLesson& lesson) const;
  // What a lesson begins with: the server's own model, or what an earlier one has made.
  LessonBase base_of(const Lesson& lesson) const;
  void refuse_while_training() const;
  void begin(const StoredLesson& lesson, const std::filesystem::path& checkpoints);
  Json summary(const StoredLesson& lesson, const LessonStanding& standing) const;
  StoredLesson require_ended(const std::string& name) const;
  StoredLesson require_model(const std::string& name) const;

  ModelShelf& shelf_;
  PageFolders folders_;
  TeachSettings settings_;
  LessonStore store_;
  Trainings trainings_;
  LessonPlanner planner_;
  mutable std::mutex planning_;  // a process each: one at a time
  std::mutex changing_;          // one change at a time: start, resume, load, keep, discard
};

}  // namespace nibble
