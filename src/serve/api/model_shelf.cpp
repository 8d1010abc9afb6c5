// SPDX-License-Identifier: MIT
#include "serve/api/model_shelf.h"

#include <algorithm>

#include "core/json.h"
#include "serve/api/token_json.h"

namespace nibble {
namespace {

using Json = nlohmann::ordered_json;

// The model a body names; what is wrong with the body is for the service to say.
std::string named_model(const std::string& body) {
  const Json j = parse_json_or_discard<Json>(body);
  const auto at = j.is_object() ? j.find("model") : j.end();
  return at != j.end() && at->is_string() ? at->get<std::string>() : "";
}

// A stream keeps its model, which goes after it.
struct KeptStream {
  std::shared_ptr<RunningModel> model;
  std::function<bool(std::string&)> next;
  bool operator()(std::string& out) const { return next(out); }
};

}  // namespace

std::shared_ptr<RunningModel> ModelShelf::second() const {
  const std::lock_guard lock(mutex_);
  return second_;
}

void ModelShelf::put(std::shared_ptr<RunningModel> second) {
  const std::lock_guard lock(mutex_);
  second_.swap(second);  // the one before goes without the lock
}

void ModelShelf::end(std::chrono::milliseconds at_most) {
  const auto until = std::chrono::steady_clock::now() + at_most;
  if (const auto other = second()) other->end(at_most);
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
      until - std::chrono::steady_clock::now());
  first_.end(std::max(left, std::chrono::milliseconds(0)));
}

ApiResponse ModelShelf::list(const RunningModel& second, const ApiCall& call) const {
  ApiResponse r = first_.service().answer(call);
  Json all = parse_json<Json>(r.body);
  const Json more = parse_json<Json>(second.service().answer(call).body);
  for (const Json& m : more.at("data")) all["data"].push_back(m);
  r.body = json_text(all);
  return r;
}

ApiResponse ModelShelf::answer(const ApiCall& call) const {
  std::shared_ptr<RunningModel> other = second();
  if (!other) return first_.service().answer(call);
  if (call.method == "GET" && call.path == "/v1/models") return list(*other, call);
  const bool asked = call.path == "/v1/models/" + other->name() ||
                     (call.method == "POST" && named_model(call.body) == other->name());
  if (!asked) return first_.service().answer(call);
  ApiResponse r = other->service().answer(call);
  if (r.next) r.next = KeptStream{std::move(other), std::move(r.next)};
  return r;
}

}  // namespace nibble
