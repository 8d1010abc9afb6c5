// SPDX-License-Identifier: MIT
// /v1/completions: texts or token ids that are continued as they are.
#pragma once
#include <functional>

#include "serve/api/api_call.h"
#include "serve/api/common_fields.h"
#include "serve/schedule/request_queue.h"

namespace nibble {

struct CompletionRequest {
  CommonFields common;
  std::vector<std::vector<int32_t>> prompts;
  std::vector<std::string> shown;  // the prompts as echo repeats them
  std::optional<int> logprobs;
  bool echo = false, prompt_only = false;
};

// Throw ApiError. The model and the queue outlive a stream.
CompletionRequest read_completion_request(const BodyFields::Json& body, const ServedModel& model);
ApiResponse answer_completion(const BodyFields::Json& body, const ServedModel& model,
                              RequestQueue& queue, const std::function<bool()>& gone);

}  // namespace nibble
