// SPDX-License-Identifier: MIT
#include "runlog/diary/run_notes.h"

#include <sstream>

#include "core/error.h"
#include "core/file.h"
#include "core/json.h"
#include "core/log.h"
#include "core/utc_time.h"

namespace nibble {

namespace fs = std::filesystem;

void add_note(const fs::path& folder, const std::string& text, NoteKind kind) {
  if (text.find_first_not_of(" \t\r\n") == std::string::npos) {
    throw_usage("a note needs some text, found '{}'", text);
  }
  nlohmann::ordered_json line = {{"time_utc", utc_now_text()}, {"text", text}};
  if (kind == NoteKind::good_for) line["good_for"] = true;
  append_file(folder / kNotesFile,
              line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

std::vector<RunNote> read_notes(const fs::path& folder) {
  std::vector<RunNote> notes;
  std::error_code ec;
  if (!fs::is_regular_file(folder / kNotesFile, ec)) return notes;
  std::istringstream in(read_text_file(folder / kNotesFile, 64 << 20));
  int64_t number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    const auto j = parse_json_or_discard<nlohmann::json>(line);
    if (!j.is_object() || !j.contains("text") || !j["text"].is_string()) {
      if (!line.empty()) {
        log_warning("{}:{}: not a note, left out", (folder / kNotesFile).string(), number);
      }
      continue;
    }
    const bool good = j.contains("good_for") && j["good_for"] == true;
    const auto time = j.find("time_utc");
    notes.push_back({time != j.end() && time->is_string() ? time->get<std::string>() : "",
                     j["text"].get<std::string>(), good ? NoteKind::good_for : NoteKind::remark});
  }
  return notes;
}

}  // namespace nibble
