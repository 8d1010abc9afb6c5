// SPDX-License-Identifier: MIT
// The API: which path does what. Any thread may call; the model is run by its replicas'.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "serve/api/api_call.h"
#include "serve/api/served_model.h"
#include "serve/schedule/request_queue.h"

namespace nibble {

class Service {
 public:
  // Both outlive it and the streams it has answered with.
  Service(const ServedModel& model, RequestQueue& queue) : model_(model), queue_(queue) {}

  // Never throws: what is wrong is an answer, too.
  ApiResponse answer(const ApiCall& call) const;
  // Methods of a path ("GET"), empty where there is no such path.
  static std::string methods(const std::string& path);

 private:
  ApiResponse route(const ApiCall& call) const;
  ApiResponse models(const std::string& path) const;
  ApiResponse tokenize(const std::string& body) const;
  ApiResponse detokenize(const std::string& body) const;
  ApiResponse health() const;

  const ServedModel& model_;
  RequestQueue& queue_;
};

// An error as an answer, and JSON as one.
class ApiError;
ApiResponse error_response(const ApiError& error);
ApiResponse json_response(const nlohmann::ordered_json& j);

}  // namespace nibble
