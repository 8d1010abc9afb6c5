// SPDX-License-Identifier: MIT
// "/api/runs/NAME/notes" as {"api", "runs", "NAME", "notes"}.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace nibble {

// Empty parts stay: "/a//b" is no other way to write "/a/b".
std::vector<std::string> path_parts(std::string_view path);

// 404 of a path that is not there.
[[noreturn]] void throw_no_path(const std::string& path);
// Throws ApiError (405) unless the method is this one.
void require_method(const std::string& method, const char* wanted, const std::string& path);

}  // namespace nibble
