// SPDX-License-Identifier: MIT
// The folder of runs for the page: a list, one run, its curves, its report, a note, two compared.
// Everything is read with runlog; nothing but a note is written.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "serve/api/api_call.h"

namespace nibble {

class RunsApi {
 public:
  explicit RunsApi(std::filesystem::path folder) : folder_(std::move(folder)) {}
  // `parts` of a path that begins with /api/runs. Throws ApiError.
  ApiResponse answer(const ApiCall& call, const std::vector<std::string>& parts) const;
  // Two runs by their names.
  ApiResponse compare(const std::string& one, const std::string& other) const;

 private:
  ApiResponse list() const;
  ApiResponse one(const std::filesystem::path& run) const;
  ApiResponse add_note(const std::filesystem::path& run, const std::string& body) const;
  std::filesystem::path folder_;
};

}  // namespace nibble
