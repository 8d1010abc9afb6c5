// SPDX-License-Identifier: MIT
// A request and its answer without sockets: what lies between HTTP and the model.
#pragma once
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace nibble {

struct ApiCall {
  std::string method, path, body;
  std::function<bool()> gone = {};  // the one who asked has left; asked now and then
};

struct ApiResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers = {};
  // A stream instead of a body: appends what has come since, which may be nothing for a while;
  // false: that was all. Dropping it cancels.
  std::function<bool(std::string& out)> next = {};
};

}  // namespace nibble
