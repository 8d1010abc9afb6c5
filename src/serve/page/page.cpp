// SPDX-License-Identifier: MIT
#include "serve/page/page.h"

#include "core/error.h"
#include "core/json.h"
#include "serve/api/api_error.h"
#include "serve/api/token_json.h"
#include "serve/page/lessons_api.h"
#include "serve/page/model_json.h"
#include "serve/page/page_files.h"
#include "serve/page/path_parts.h"

namespace nibble {
namespace {

using Json = nlohmann::ordered_json;

}  // namespace

Page::Page(ModelShelf& shelf, const PageFolders& folders, TeachSettings teach)
    : shelf_(shelf), runs_(folders.runs), lessons_(shelf, folders, std::move(teach)) {}

// Whoever teaches may know which file or how much memory it was: it is their machine.
ApiResponse Page::answer(const ApiCall& call) {
  try {
    return route(call);
  } catch (const UsageError&) {
    return error_response(current_api_error());
  } catch (const Error& e) {
    return error_response(ApiError(422, "invalid_request_error", e.what()));
  } catch (...) {
    return error_response(current_api_error());
  }
}

ApiResponse Page::route(const ApiCall& call) {
  if (call.method == "GET") {
    if (auto file = page_file(call.path)) return *std::move(file);
  }
  if (!call.path.starts_with("/api/")) return shelf_.answer(call);
  const std::vector<std::string> parts = path_parts(call.path);
  const std::string& room = parts[1];
  if (room == "runs") return runs_.answer(call, parts);
  if (room == "lessons") return answer_lessons(lessons_, call, parts);
  if (room == "compare" && parts.size() == 4) {
    require_method(call.method, "GET", call.path);
    return runs_.compare(parts[2], parts[3]);
  }
  if (room == "model" && parts.size() == 2) {
    require_method(call.method, "GET", call.path);
    return models();
  }
  if (room == "model" && parts.size() == 4 && parts[3] == "tensors") {
    require_method(call.method, "GET", call.path);
    return tensors(parts[2]);
  }
  throw_no_path(call.path);
}

ApiResponse Page::models() const {
  Json j = {{"markdown", has_markdown()},
            {"machine", machine_json()},
            {"models", Json::array({model_json(shelf_.first())})}};
  if (const auto second = shelf_.second()) j["models"].push_back(model_json(*second));
  return json_response(j);
}

ApiResponse Page::tensors(const std::string& name) {
  const auto second = shelf_.second();
  const bool first = name == shelf_.first().name();
  if (!first && !(second && second->name() == name)) {
    throw ApiError(404, "invalid_request_error", fmt::format("there is no model '{}'", name), "",
                   "model_not_found");
  }
  const std::lock_guard lock(tensors_mutex_);
  const RunningModel& model = first ? shelf_.first() : *second;
  // Another model may have had the name before.
  std::string& text = tensors_[fmt::format("{} {}", name, model.model().created)];
  if (text.empty()) text = json_text(tensors_json(model));
  return {200, "application/json", text, {}, {}};
}

}  // namespace nibble
