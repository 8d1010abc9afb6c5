// SPDX-License-Identifier: MIT
#include "eval/check_report.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <ostream>

#include "core/file.h"
#include "eval/damage/check_page.h"

namespace nibble {

nlohmann::json json_number(double v) {
  if (std::isfinite(v)) return v;
  return std::isnan(v) ? "nan" : v > 0 ? "inf" : "-inf";
}

CheckReport::CheckReport(std::ostream& out)
    : out_(out), checks_(std::make_unique<nlohmann::json>(nlohmann::json::array())) {}
CheckReport::~CheckReport() = default;

void CheckReport::note(const std::string& line) { out_ << line << std::endl; }

void CheckReport::add(const std::string& name, bool passed, const std::string& figure) {
  add(name, passed, figure, nlohmann::json::object());
}

void CheckReport::add(const std::string& name, bool passed, const std::string& figure,
                      nlohmann::json details) {
  out_ << fmt::format("{} {}: {}", passed ? "PASS" : "FAIL", name, figure) << std::endl;
  passed_ = passed_ && passed;
  details["check"] = name;
  details["passed"] = passed;
  details["figure"] = figure;
  checks_->push_back(std::move(details));
}

nlohmann::json CheckReport::all(const CheckReportInfo& info) const {
  nlohmann::json j = {
      {"model", info.model}, {"backend", info.backend}, {"passed", passed_}, {"checks", *checks_}};
  if (!info.against.empty()) j["against"] = info.against;
  return j;
}

void CheckReport::write_json(const std::filesystem::path& file, const CheckReportInfo& info) const {
  // Replies may end inside a character.
  replace_file(file,
               all(info).dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

void CheckReport::write_html(const std::filesystem::path& file, const CheckReportInfo& info) const {
  replace_file(file, check_page(all(info)));
}

}  // namespace nibble
