// SPDX-License-Identifier: MIT
#include "runlog/chain_record.h"

#include <algorithm>
#include <array>

#include "core/error.h"
#include "core/file.h"
#include "core/json.h"
#include "runlog/run_hashes.h"

namespace nibble {

using nlohmann::ordered_json;

std::string chain_json(const ChainRecord& r) {
  ordered_json j = {{"schema", 1},
                    {"chain", r.name},
                    {"file", r.file},
                    {"state", run_state_name(r.process.state)},
                    {"pid", r.process.pid},
                    {"pid_start", r.process.pid_start},
                    {"host", r.process.host},
                    {"started_utc", r.process.started_utc},
                    {"updated_utc", r.process.updated_utc},
                    {"stages", ordered_json::array()}};
  for (const StageRecord& s : r.stages) {
    ordered_json files = ordered_json::array();
    for (const RunFile& f : s.files) {
      files.push_back(
          {{"role", f.role}, {"path", f.path}, {"bytes", f.bytes}, {"sha256", f.sha256}});
    }
    j["stages"].push_back({{"name", s.name},
                           {"command", s.command},
                           {"state", s.state},
                           {"exit_code", s.exit_code},
                           {"runs", s.runs},
                           {"output", s.output},
                           {"settings", s.settings},
                           {"files", files}});
  }
  return j.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

ChainRecord read_chain(const std::filesystem::path& file) {
  ChainRecord r;
  try {
    const auto j = parse_json<nlohmann::json>(read_text_file(file, 64 << 20));
    r.name = j.at("chain").get<std::string>();
    r.file = j.at("file").get<std::string>();
    r.process.pid = j.at("pid").get<pid_t>();
    r.process.pid_start = j.at("pid_start").get<uint64_t>();
    r.process.host = j.at("host").get<std::string>();
    r.process.started_utc = j.at("started_utc").get<std::string>();
    r.process.updated_utc = j.at("updated_utc").get<std::string>();
    const std::string state = j.at("state").get<std::string>();
    const auto known = parse_run_state(state);
    if (!known) throw_format("{}: unknown state '{}'", file.string(), state);
    r.process.state = *known;
    for (const auto& s : j.at("stages")) {
      StageRecord stage;
      stage.name = s.at("name").get<std::string>();
      stage.command = s.at("command").get<std::string>();
      stage.state = s.at("state").get<std::string>();
      stage.exit_code = s.at("exit_code").get<int>();
      stage.runs = s.at("runs").get<std::vector<std::string>>();
      stage.output = s.at("output").get<std::string>();
      stage.settings = s.at("settings").get<std::string>();
      for (const auto& f : s.at("files")) {
        stage.files.push_back({f.at("role").get<std::string>(), f.at("path").get<std::string>(),
                               f.at("bytes").get<uint64_t>(), f.at("sha256").get<std::string>()});
      }
      r.stages.push_back(std::move(stage));
    }
  } catch (const nlohmann::json::exception& e) {
    throw_format("{}: not the record of a chain: {}", file.string(), e.what());
  }
  return r;
}

std::string settings_that_matter(const std::string& toml) {
  constexpr std::array kNoMatter = {
      "run-name",           "note",   "runs-dir",         "log-every",   "checkpoint-dir",
      "save-every-steps",   "resume", "keep-checkpoints", "vram-report", "threads",
      "save-every-minutes", "force"};
  std::string out;
  for (const auto& [key, value] : config_lines(toml)) {
    if (std::ranges::find(kNoMatter, key) != kNoMatter.end()) continue;
    out += key + " = " + value + "\n";
  }
  return out;
}

bool still_finished(const StageRecord& stage, const std::string& settings) {
  if (stage.state != "finished" || stage.settings != settings || stage.files.empty()) return false;
  BackgroundHashes hashes;
  for (const RunFile& f : stage.files) {
    std::error_code ec;
    const uint64_t bytes = std::filesystem::file_size(f.path, ec);
    if (ec || bytes != f.bytes || f.sha256.empty()) return false;
    hashes.add(f.path);
  }
  hashes.wait();
  return std::ranges::all_of(stage.files,
                             [&](const RunFile& f) { return hashes.result(f.path) == f.sha256; });
}

}  // namespace nibble
