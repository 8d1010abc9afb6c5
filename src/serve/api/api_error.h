// SPDX-License-Identifier: MIT
// A request that is not answered, and why, in the shape that OpenAI's clients read.
#pragma once
#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace nibble {

class ApiError : public std::runtime_error {
 public:
  ApiError(int status, std::string type, const std::string& message, std::string param = "",
           std::string code = "")
      : std::runtime_error(message),
        status_(status),
        type_(std::move(type)),
        param_(std::move(param)),
        code_(std::move(code)) {}
  int status() const { return status_; }
  int retry_after_s = 0;  // above 0: when to ask again

  // {"error": {"message", "type", "param", "code"}}
  std::string body() const;

 private:
  int status_;
  std::string type_, param_, code_;
};

// 400: the field `param` is not what it should be.
template <class... Args>
[[noreturn]] void throw_invalid(std::string param, fmt::format_string<Args...> f, Args&&... args) {
  throw ApiError(400, "invalid_request_error", fmt::format(f, std::forward<Args>(args)...),
                 std::move(param));
}

// What stands for an exception of the rooms below. Called in a catch block.
ApiError current_api_error();

}  // namespace nibble
