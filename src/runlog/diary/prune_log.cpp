// SPDX-License-Identifier: MIT
#include "runlog/diary/prune_log.h"

#include <sstream>

#include "core/file.h"
#include "core/json.h"

namespace nibble {

namespace fs = std::filesystem;

void add_prune_line(const fs::path& base, const PruneLine& l) {
  nlohmann::ordered_json line = {
      {"time_utc", l.time_utc}, {l.what, l.name}, {"to", l.to}, {"reason", l.reason}};
  if (!l.run.empty()) line["of"] = l.run;
  append_file(base / "prune.jsonl",
              line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

std::vector<PruneLine> read_prune_log(const fs::path& base) {
  std::vector<PruneLine> lines;
  std::error_code ec;
  if (!fs::is_regular_file(base / "prune.jsonl", ec)) return lines;
  std::istringstream in(read_text_file(base / "prune.jsonl", 64 << 20));
  for (std::string text; std::getline(in, text);) {
    const auto j = parse_json_or_discard<nlohmann::json>(text);
    if (!j.is_object()) continue;
    const auto field = [&](const char* key) {
      const auto it = j.find(key);
      return it != j.end() && it->is_string() ? it->get<std::string>() : std::string();
    };
    for (const char* what : {"run", "chain", "weights"}) {
      if (field(what).empty()) continue;
      lines.push_back(
          {field("time_utc"), what, field(what), field("to"), field("reason"), field("of")});
    }
  }
  return lines;
}

}  // namespace nibble
