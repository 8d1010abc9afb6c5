// SPDX-License-Identifier: MIT
#include "serve/page/runs_api.h"

#include <algorithm>

#include "core/json.h"
#include "runlog/diary/run_notes.h"
#include "runlog/json/run_json.h"
#include "runlog/run_report.h"
#include "serve/api/api_error.h"
#include "serve/api/body_fields.h"
#include "serve/api/service.h"
#include "serve/page/compare_json.h"
#include "serve/page/path_parts.h"
#include "serve/page/run_names.h"

namespace nibble {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr size_t kMostRuns = 500, kMostNote = 4000;

// The report brings a script and a style of its own, which its own policy names by hash. It is
// shown as a page of nobody's: whatever a reply in it may hold, it is not this server's page.
constexpr const char* kReportPolicy =
    "sandbox allow-scripts; default-src 'none'; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

Json row_json(const RunRecord& r) {
  const auto weights = r.with_role("weights");
  return {{"name", r.name},
          {"command", r.status.command},
          {"state", r.state_name()},
          {"message", r.status.message},
          {"started_utc", r.status.started_utc},
          {"seconds", r.seconds()},
          {"step", r.status.last.step},
          {"steps", r.status.steps},
          {"first_loss", r.totals.first_loss},
          {"loss", r.status.last.smoothed_loss},
          {"weights", weights.empty() ? "" : fs::path(weights.front()->path).filename().string()},
          {"device", r.device},
          {"pinned", r.pinned}};
}

fs::path run_inside(const fs::path& base, const std::string& name) {
  const fs::path run = folder_inside(base, name, "run");
  std::error_code ec;
  if (fs::exists(run / "status.json", ec)) return run;
  throw ApiError(404, "invalid_request_error", fmt::format("'{}' is no run", name), "",
                 "not_found");
}

Json notes_json(const fs::path& run) {
  Json notes = Json::array();
  for (const RunNote& n : read_notes(run)) {
    notes.push_back(
        {{"time_utc", n.time_utc}, {"text", n.text}, {"good_for", n.kind == NoteKind::good_for}});
  }
  return notes;
}

}  // namespace

ApiResponse RunsApi::list() const {
  std::vector<RunRecord> runs = read_records(folder_);
  std::ranges::reverse(runs);  // the newest first
  if (runs.size() > kMostRuns) runs.resize(kMostRuns);
  Json j = {{"folder", folder_.string()}, {"runs", Json::array()}};
  for (const RunRecord& r : runs) j["runs"].push_back(row_json(r));
  return json_response(j);
}

ApiResponse RunsApi::one(const fs::path& run) const {
  const RunRecord record = read_record(run);
  Json j = full_json(record, run);
  j["lineage"] = lineage_json(lineage_of(record, read_records(folder_)));
  j["replies"] = replies_json(read_replies(run));
  j["gate_scores"] = gate_scores_json(run);
  j["notes"] = notes_json(run);
  return json_response(j);
}

ApiResponse RunsApi::add_note(const fs::path& run, const std::string& body) const {
  const Json j = parse_body(body);
  BodyFields f(j);
  const std::string text = f.text("text").value_or("");
  const bool good_for = f.boolean("good_for").value_or(false);
  f.finish();
  if (text.size() > kMostNote) throw_invalid("text", "a note has at most {} bytes here", kMostNote);
  nibble::add_note(run, text, good_for ? NoteKind::good_for : NoteKind::remark);
  return json_response({{"notes", notes_json(run)}});
}

ApiResponse RunsApi::compare(const std::string& one, const std::string& other) const {
  return json_response(compare_json(run_inside(folder_, one), run_inside(folder_, other)));
}

ApiResponse RunsApi::answer(const ApiCall& call, const std::vector<std::string>& parts) const {
  const std::string what = parts.size() == 4 ? parts[3] : "";
  const bool known = parts.size() == 2 || parts.size() == 3 || what == "metrics" ||
                     what == "report" || what == "notes";
  if (!known) throw_no_path(call.path);
  require_method(call.method, what == "notes" ? "POST" : "GET", call.path);
  if (parts.size() == 2) return list();
  const fs::path run = run_inside(folder_, parts[2]);
  if (what == "notes") return add_note(run, call.body);
  if (what == "metrics") return json_response(metrics_json(run));
  if (what == "report") {
    return {200,
            "text/html; charset=utf-8",
            report_html(read_report(run)),
            {{"Content-Security-Policy", kReportPolicy}},
            {}};
  }
  return one(run);
}

}  // namespace nibble
