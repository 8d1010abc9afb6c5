// SPDX-License-Identifier: MIT
#include "serve/page/lesson_store.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/durable/directories.h"
#include "core/error.h"
#include "core/file.h"
#include "core/json.h"
#include "core/log.h"
#include "core/utc_time.h"
#include "serve/api/api_error.h"
#include "serve/api/token_json.h"
#include "serve/page/run_names.h"

namespace nibble {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr const char* kFile = "lesson.json";
constexpr uint64_t kMostFile = 256 << 20;
constexpr int kMostLessons = 100000;

}  // namespace

std::string LessonStore::make(const fs::path& taken) const {
  make_directories(folder_);
  for (int n = 1; n <= kMostLessons; ++n) {
    const std::string name = fmt::format("lesson-{}", n);
    std::error_code ec;
    if (fs::exists(taken / name, ec)) continue;
    if (::mkdir((folder_ / name).c_str(), 0755) == 0) {
      sync_directory(folder_);
      return name;
    }
    if (errno != EEXIST) {
      throw_format("cannot make a folder in {}: {}", folder_.string(), std::strerror(errno));
    }
  }
  throw_format("{}: too many lessons", folder_.string());
}

fs::path LessonStore::folder(const std::string& name) const {
  return folder_inside(folder_, name, "lesson");
}

void LessonStore::write(const StoredLesson& l) const {
  Json j = {
      {"created_utc", l.created_utc}, {"window", l.window},   {"runs", l.runs},
      {"output", l.output},           {"kept_as", l.kept_as}, {"lesson", lesson_json(l.lesson)}};
  replace_file(folder_ / l.name / kFile, json_text(j) + "\n");
}

StoredLesson LessonStore::read(const std::string& name) const {
  const fs::path file = folder(name) / kFile;
  try {
    const Json j = parse_json<Json>(read_text_file(file, kMostFile));
    StoredLesson l;
    l.name = name;
    l.created_utc = j.at("created_utc").get<std::string>();
    l.window = j.at("window").get<int64_t>();
    l.runs = j.at("runs").get<std::vector<std::string>>();
    l.output = j.at("output").get<std::string>();
    l.kept_as = j.at("kept_as").get<std::string>();
    l.lesson = read_lesson(j.at("lesson"), {}, false);
    const bool plain = std::ranges::all_of(l.runs, is_plain_name) &&
                       (l.output == "model" || l.output.starts_with("model/model.")) &&
                       (l.kept_as.empty() || is_plain_name(l.kept_as));
    if (l.runs.empty() || !plain) throw_format("{} names what it may not", file.string());
    return l;
  } catch (const Json::exception& e) {
    throw_format("{}: not a lesson: {}", file.string(), e.what());
  } catch (const ApiError& e) {
    throw_format("{}: not a lesson: {}", file.string(), e.what());
  }
}

std::vector<StoredLesson> LessonStore::all() const {
  std::vector<StoredLesson> list;
  std::error_code ec;
  for (const auto& entry : fs::directory_iterator(folder_, ec)) {
    const std::string name = entry.path().filename().string();
    if (!is_plain_name(name) || !fs::exists(entry.path() / kFile, ec)) continue;
    try {
      list.push_back(read(name));
    } catch (const std::exception& e) {
      log_warning("left out: {}", e.what());
    }
  }
  std::ranges::sort(list, [](const StoredLesson& a, const StoredLesson& b) {
    return a.created_utc > b.created_utc;
  });
  return list;
}

void LessonStore::discard(const std::string& name) const {
  const fs::path from = folder(name), trash = folder_ / ".trash";
  make_directories(trash);
  const std::string stamp = utc_stamp(std::chrono::system_clock::now());
  rename_durably(from, trash / fmt::format("{}-{}", stamp, name), Existing::keep);
  sync_directory(folder_);
}

}  // namespace nibble
