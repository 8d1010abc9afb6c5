// SPDX-License-Identifier: MIT
// Replies of /v1/chat/completions: whole, or as a stream of events.
#pragma once
#include <functional>
#include <memory>

#include "serve/api/api_call.h"
#include "serve/api/chat_request.h"
#include "serve/schedule/request_queue.h"

namespace nibble {

// Throws ApiError. The model and the queue outlive a stream.
ApiResponse answer_chat(const BodyFields::Json& body, const ServedModel& model, RequestQueue& queue,
                        const std::function<bool()>& gone);

}  // namespace nibble
