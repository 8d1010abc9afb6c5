// SPDX-License-Identifier: MIT
// The results of `nibble check`: a line each for people, JSON for machines.
#pragma once
#include <filesystem>
#include <iosfwd>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace nibble {

struct CheckReportInfo {
  std::string model, against, backend;  // against: empty without a model to compare with
};

class CheckReport {
 public:
  explicit CheckReport(std::ostream& out);
  ~CheckReport();

  void note(const std::string& line);  // a line before the verdict
  // Prints "PASS name: figure" or "FAIL name: figure"; `details`, an object, goes into the JSON.
  void add(const std::string& name, bool passed, const std::string& figure);
  void add(const std::string& name, bool passed, const std::string& figure, nlohmann::json details);
  bool passed() const { return passed_; }
  void write_json(const std::filesystem::path& file, const CheckReportInfo& info) const;
  // The same as a page (eval/damage/check_page.h).
  void write_html(const std::filesystem::path& file, const CheckReportInfo& info) const;

 private:
  nlohmann::json all(const CheckReportInfo& info) const;

  std::ostream& out_;
  bool passed_ = true;
  std::unique_ptr<nlohmann::json> checks_;  // an array
};

// Numbers JSON cannot hold become strings.
nlohmann::json json_number(double v);

}  // namespace nibble
