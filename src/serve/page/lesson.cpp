// SPDX-License-Identifier: MIT
#include "serve/page/lesson.h"

#include <algorithm>
#include <cmath>

#include "core/json.h"
#include "data/records.h"
#include "serve/api/api_error.h"
#include "serve/api/body_fields.h"
#include "serve/page/run_names.h"

namespace nibble {
namespace {

using Json = nlohmann::ordered_json;

std::string bounded(std::optional<std::string> text, const std::string& field) {
  if (text && text->size() > LessonLimits::kText)
    throw_invalid(field, "'{}' has more than {} bytes", field, LessonLimits::kText);
  return text.value_or("");
}

LessonRow read_row(const Json& j, size_t n) {
  const std::string path = fmt::format("rows[{}].", n);
  BodyFields f(j, path);
  LessonRow row{bounded(f.text("question"), path + "question"),
                bounded(f.text("answer"), path + "answer"), bounded(f.text("line"), path + "line")};
  f.finish();
  try {
    if (!row.line.empty()) {
      parse_json_record(row.line, DataUse::fine_tune, DataWants::learnable);
    } else {
      check_answer(row.question, "the question", AnswerFile::other);
      check_answer(row.answer, "the answer", AnswerFile::other);
    }
  } catch (const Error& e) {
    throw_invalid(path + (row.line.empty() ? "answer" : "line"), "row {}: {}", n + 1, e.what());
  }
  return row;
}

const Json& array_of(const Json* j, const char* name, size_t most) {
  static const Json kNone = Json::array();
  if (!j) return kNone;
  if (!j->is_array()) throw_invalid(name, "'{}' must be an array", name);
  if (j->size() > most) throw_invalid(name, "'{}' has more than {} entries", name, most);
  return *j;
}

LessonKeep keep_of(const std::string& name) {
  for (const LessonKeep k : {LessonKeep::nothing, LessonKeep::prompts, LessonKeep::own_text}) {
    if (name == keep_name(k)) return k;
  }
  throw_invalid("keep", "'keep' must be nothing, prompts or own_text");
}

}  // namespace

std::string keep_name(LessonKeep keep) {
  switch (keep) {
    case LessonKeep::nothing: return "nothing";
    case LessonKeep::prompts: return "prompts";
    case LessonKeep::own_text: return "own_text";
  }
  return "";
}

double passes_of(const Lesson& l) {
  const double taught = double(l.batch_size) * (l.keep == LessonKeep::nothing ? 1 : 0.5);
  return taught * double(l.steps) / double(std::max<size_t>(1, l.rows.size()));
}

int64_t steps_for(const Lesson& l, int64_t least) {
  constexpr double kPasses = 12;
  Lesson one = l;
  one.steps = 1;
  return std::clamp(int64_t(std::ceil(kPasses / passes_of(one))), least, LessonLimits::kSteps);
}

Lesson default_lesson(int64_t parameters) {
  Lesson l;
  l.keep = LessonKeep::prompts;
  l.own_tokens = 4000;
  l.batch_size = 8;
  // A small one has to be moved far. One of 500 M says four rows after four steps at a thirtieth of
  // the rate, and forgets how to speak at a sixth of it (docs/serve.md has the numbers).
  const bool small = parameters < 50'000'000;
  l.steps = small ? 60 : 16;
  l.lr = small ? 3e-4 : 1e-5;
  return l;
}

Lesson read_lesson(const Json& body, const Lesson& defaults, bool need_rows) {
  BodyFields f(body);
  Lesson l = defaults;
  l.rows.clear();
  l.prompts.clear();
  l.from = f.text("from").value_or("");
  if (!l.from.empty() && !is_plain_name(l.from)) throw_invalid("from", "'from' is a lesson's name");
  for (const Json& j : array_of(f.any("rows"), "rows", LessonLimits::kRows)) {
    l.rows.push_back(read_row(j, l.rows.size()));
  }
  for (const Json& j : array_of(f.any("prompts"), "prompts", LessonLimits::kPrompts)) {
    if (!j.is_string() || j.get<std::string>().empty())
      throw_invalid("prompts", "'prompts' must be texts");
    l.prompts.push_back(bounded(j.get<std::string>(), "prompts"));
  }
  if (const auto name = f.text("keep")) l.keep = keep_of(*name);
  l.own_tokens =
      f.integer("own_tokens", 100, LessonLimits::kOwnTokens).value_or(defaults.own_tokens);
  const auto steps = f.integer("steps", 1, LessonLimits::kSteps);
  l.batch_size = f.integer("batch_size", 1, LessonLimits::kBatch).value_or(defaults.batch_size);
  l.lr = f.number("lr", 1e-9, 1).value_or(defaults.lr);
  f.finish();
  if (need_rows && l.rows.empty()) throw_invalid("rows", "there is nothing to teach: no row");
  if (l.keep == LessonKeep::prompts && l.prompts.empty()) l.keep = LessonKeep::nothing;
  l.steps = steps ? *steps : steps_for(l, std::max<int64_t>(1, defaults.steps));
  return l;
}

Json lesson_json(const Lesson& l) {
  Json j = {{"from", l.from},
            {"rows", Json::array()},
            {"keep", keep_name(l.keep)},
            {"prompts", l.prompts},
            {"own_tokens", l.own_tokens},
            {"steps", l.steps},
            {"batch_size", l.batch_size},
            {"lr", l.lr}};
  for (const LessonRow& r : l.rows) {
    Json row = {{"question", r.question}, {"answer", r.answer}};
    if (!r.line.empty()) row["line"] = r.line;
    j["rows"].push_back(std::move(row));
  }
  return j;
}

}  // namespace nibble
