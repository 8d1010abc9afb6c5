// SPDX-License-Identifier: MIT
#include "serve/page/lessons_api.h"

#include "core/json.h"
#include "serve/api/body_fields.h"
#include "serve/page/lesson_rows.h"
#include "serve/page/path_parts.h"

namespace nibble {
namespace {

using Json = nlohmann::ordered_json;

ApiResponse read_rows(const std::string& text) {
  const Json j = parse_body(text);
  BodyFields f(j);
  const std::string name = f.text("name").value_or(""), file = f.text("text").value_or("");
  f.finish();
  return json_response(rows_of_file(name, file));
}

ApiResponse archive(TarStream files, const std::string& name) {
  ApiResponse r{200, "application/x-tar", "", {}, {}};
  // A lesson's name: plain letters and digits.
  r.headers.emplace_back("Content-Disposition",
                         fmt::format("attachment; filename=\"{}.tar\"", name));
  const auto stream = std::make_shared<TarStream>(std::move(files));
  r.next = [stream](std::string& out) { return stream->next(out); };
  return r;
}

}  // namespace

ApiResponse answer_lessons(Lessons& lessons, const ApiCall& call,
                           const std::vector<std::string>& parts) {
  const auto is = [&](const char* method) { require_method(call.method, method, call.path); };
  if (parts.size() == 2) {
    if (call.method == "GET") return json_response(lessons.overview());
    is("POST");
    return json_response(lessons.start(call.body));
  }
  const std::string& name = parts[2];
  if (parts.size() == 3) {
    if (name == "rows" || name == "plan") is("POST");
    if (name == "rows") return read_rows(call.body);
    if (name == "plan") return json_response(lessons.plan(call.body));
    is("GET");
    return json_response(lessons.status(name));
  }
  if (parts.size() != 4) throw_no_path(call.path);
  const std::string& what = parts[3];
  if (what == "export") {
    is("GET");
    return archive(lessons.export_of(name), name);
  }
  const std::pair<const char*, std::function<Json()>> actions[] = {
      {"stop", [&] { return lessons.stop(name); }},
      {"resume", [&] { return lessons.resume(name); }},
      {"load", [&] { return lessons.load(name); }},
      {"unload", [&] { return lessons.unload(name); }},
      {"check", [&] { return lessons.check(name); }},
      {"keep", [&] { return lessons.keep(name, call.body); }},
      {"discard", [&] { return lessons.discard(name); }},
  };
  for (const auto& [action, run] : actions) {
    if (what != action) continue;
    is("POST");
    return json_response(run());
  }
  throw_no_path(call.path);
}

}  // namespace nibble
