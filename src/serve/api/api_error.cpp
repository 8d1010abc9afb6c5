// SPDX-License-Identifier: MIT
#include "serve/api/api_error.h"

#include "core/error.h"
#include "core/json.h"
#include "core/log.h"
#include "serve/schedule/request_queue.h"

namespace nibble {

std::string ApiError::body() const {
  using Json = nlohmann::ordered_json;
  const auto text_or_null = [](const std::string& s) { return s.empty() ? Json() : Json(s); };
  const Json j = {{"error",
                   {{"message", what()},
                    {"type", type_},
                    {"param", text_or_null(param_)},
                    {"code", text_or_null(code_)}}}};
  return j.dump(-1, ' ', false, Json::error_handler_t::replace);
}

ApiError current_api_error() {
  try {
    throw;
  } catch (const ApiError& e) {
    return e;
  } catch (const QueueFull& e) {
    ApiError error(429, "rate_limit_error", e.what(), "", "queue_full");
    error.retry_after_s = e.retry_after_s();
    return error;
  } catch (const Closing& e) {
    ApiError error(503, "server_error", e.what(), "", "shutting_down");
    error.retry_after_s = 5;
    return error;
  } catch (const UsageError& e) {
    return ApiError(400, "invalid_request_error", e.what());
  } catch (const std::exception& e) {
    // Told in full to who runs the server; to a client only that it was not the request.
    log_warning("a request failed: {}", e.what());
    return ApiError(500, "server_error", "the server failed; its log says why");
  }
}

}  // namespace nibble
