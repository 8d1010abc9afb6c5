// SPDX-License-Identifier: MIT
#include "runlog/run_record.h"

#include <algorithm>
#include <cmath>
#include <sstream>

#include "core/error.h"
#include "core/file.h"
#include "core/json.h"
#include "core/log.h"
#include "core/toml.h"
#include "core/utc_time.h"
#include "runlog/run_folder.h"
#include "runlog/run_series.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using nlohmann::ordered_json;

ordered_json config_json(const std::vector<std::pair<std::string, std::string>>& config) {
  std::string text;
  for (const auto& [key, value] : config) text += fmt::format("\"{}\" = {}\n", key, value);
  try {
    const toml::table table = parse_toml(text, "config.toml");
    std::ostringstream out;
    out << toml::json_formatter(table);
    const ordered_json parsed = parse_json<ordered_json>(out.str());
    ordered_json j = ordered_json::object();  // in the order of the options
    for (const auto& [key, value] : config) j[key] = parsed.at(key);
    return j;
  } catch (const std::exception&) {  // not one of ours: as text, then
    return ordered_json(config);
  }
}

ordered_json step_loss_json(const StepLoss& s) {
  if (s.step == 0) return nullptr;
  return {{"step", s.step}, {"loss", s.loss}};
}

ordered_json files_json(const std::vector<RunFile>& files) {
  ordered_json list = ordered_json::array();
  for (const RunFile& f : files) {
    list.push_back({{"role", f.role}, {"path", f.path}, {"bytes", f.bytes}});
    list.back()["sha256"] = f.sha256.empty() ? ordered_json() : ordered_json(f.sha256);
  }
  return list;
}

ordered_json gates_json(const std::vector<GateScores>& gates) {
  ordered_json list = ordered_json::array();
  for (const GateScores& g : gates) {
    ordered_json scores = ordered_json::object();
    for (const GateScore& s : g.groups) {
      scores[s.group] = {{"passed", s.passed}, {"total", s.total}};
    }
    list.push_back({{"step", g.step}, {"scores", scores}});
  }
  return list;
}

ordered_json self_test_json(const std::optional<SelfTestRecord>& t) {
  if (!t) return nullptr;
  return {{"passed", t->passed},
          {"problem", t->problem},
          {"loss_in_training", t->loss_in_training},
          {"loss_from_file", t->loss_from_file},
          {"prompt", t->prompt},
          {"reply", t->reply}};
}

// Values of a JSON object that may hold anything.
struct Reader {
  const json& j;
  const json& at(const char* key) const {
    static const json none;
    if (!j.is_object()) return none;
    const auto it = j.find(key);
    return it == j.end() ? none : *it;
  }
  std::string text(const char* key) const {
    return at(key).is_string() ? at(key).get<std::string>() : "";
  }
  double number(const char* key) const {
    return at(key).is_number() ? at(key).get<double>() : kNoValue;
  }
  int64_t count(const char* key) const {
    const double v = number(key);
    return std::isfinite(v) && std::abs(v) < 9e15 ? int64_t(v) : 0;
  }
  StepLoss step_loss(const char* key) const {
    const Reader r{at(key)};
    return {r.count("step"), r.number("loss")};
  }
};

void read_into(RunRecord& record, const json& j) {
  const Reader r{j};
  record.command_line = r.text("command_line");
  record.directory = r.text("directory");
  record.version = r.text("version");
  record.commit = r.text("commit");
  record.device = r.text("device");
  record.ended_utc = r.text("ended_utc");
  if (r.at("exit_code").is_number_integer()) record.exit_code = r.at("exit_code").get<int>();
  for (const json& f : r.at("files")) {
    const Reader file{f};
    record.files.push_back(
        {file.text("role"), file.text("path"), uint64_t(file.count("bytes")), file.text("sha256")});
  }
  const Reader m{r.at("metrics")};
  const Reader grad{m.at("largest_grad_norm")};
  record.totals = {m.number("first_loss"),
                   m.step_loss("lowest_loss"),
                   m.number("lowest_smoothed_loss"),
                   {grad.count("step"), grad.number("norm")},
                   std::max(0.0, m.number("seconds")),
                   m.count("tokens"),
                   m.count("response_tokens"),
                   m.count("skipped"),
                   m.step_loss("first_held_out"),
                   m.step_loss("best_held_out"),
                   m.number("taught_loss"),
                   m.number("kept_loss"),
                   m.number("largest_kept_loss"),
                   m.count("kept_tokens")};
  const Reader memory{r.at("memory")};
  record.memory.peak_rss_bytes = uint64_t(std::max<int64_t>(0, memory.count("peak_rss_bytes")));
  record.memory.peak_gpu_mib = memory.count("peak_gpu_mib");
  for (const json& a : memory.at("arenas")) {
    const Reader arena{a};
    record.memory.arenas.emplace_back(arena.text("name"),
                                      uint64_t(std::max<int64_t>(0, arena.count("peak_bytes"))));
  }
  for (const json& w : r.at("warnings")) {
    if (w.is_string()) record.warnings.push_back(w.get<std::string>());
  }
  const Reader test{r.at("self_test")};
  if (test.j.is_object()) {
    record.self_test = {
        test.at("passed") == true,     test.text("problem"), test.number("loss_in_training"),
        test.number("loss_from_file"), test.text("prompt"),  test.text("reply")};
  }
  const Reader before{r.at("continues")};
  record.continues = before.text("run");
  record.continued_at = before.count("step");
  const Reader chain{r.at("chain")};
  if (chain.j.is_object()) {
    record.chain = {chain.text("name"), chain.text("stage_name"), int(chain.count("stage")),
                    int(chain.count("stages"))};
  }
}

std::string text_or_empty(const fs::path& file) {
  std::error_code ec;
  return fs::is_regular_file(file, ec) ? read_text_file(file, 16 << 20) : "";
}

}  // namespace

void RunTotals::add(const StepRecord& r) {
  if (std::isnan(first_loss)) first_loss = r.loss;
  if (std::isfinite(r.loss) && !(lowest.loss <= r.loss)) lowest = {r.step, r.loss};
  if (std::isfinite(r.smoothed_loss) && !(lowest_smoothed <= r.smoothed_loss)) {
    lowest_smoothed = r.smoothed_loss;
  }
  if (std::isfinite(r.grad_norm) && !(largest_grad.loss >= r.grad_norm)) {
    largest_grad = {r.step, r.grad_norm};
  }
  seconds += r.seconds;
  tokens += r.tokens;
  response_tokens += r.response_tokens;
  skipped += r.skipped ? 1 : 0;
  kept_tokens += r.kept_tokens;
  if (std::isfinite(r.taught_loss)) taught_loss = r.taught_loss;
  if (!std::isfinite(r.kept_loss)) return;
  kept_loss = r.kept_loss;
  if (!(largest_kept >= r.kept_loss)) largest_kept = r.kept_loss;
}

void RunTotals::add_held_out(int64_t step, double loss) {
  if (first_held_out.step == 0) first_held_out = {step, loss};
  if (std::isfinite(loss) && !(best_held_out.loss <= loss)) best_held_out = {step, loss};
}

std::string RunRecord::made_by() const {
  return fmt::format("nibble {}{}{}", version, commit.empty() ? "" : " (commit " + commit + ")",
                     device.empty() ? "" : " on " + device);
}

std::string RunRecord::state_name() const {
  return gone ? "gone" : std::string(run_state_name(status.state));
}

double RunRecord::seconds() const {
  const auto from = parse_utc(status.started_utc);
  const auto to = parse_utc(ended_utc.empty() ? status.updated_utc : ended_utc);
  return from && to ? std::chrono::duration<double>(*to - *from).count() : kNoValue;
}

std::string RunRecord::setting(std::string_view key) const {
  for (const auto& [k, v] : config) {
    if (k == key) return unquoted(v);
  }
  return "";
}

std::vector<const RunFile*> RunRecord::with_role(std::string_view role) const {
  std::vector<const RunFile*> found;
  for (const RunFile& f : files) {
    if (f.role == role) found.push_back(&f);
  }
  return found;
}

std::vector<std::pair<std::string, std::string>> config_lines(const std::string& toml) {
  std::vector<std::pair<std::string, std::string>> lines;
  std::istringstream in(toml);
  for (std::string line; std::getline(in, line);) {
    const size_t equals = line.find(" = ");
    if (line.starts_with("#") || equals == std::string::npos) continue;
    lines.emplace_back(line.substr(0, equals), line.substr(equals + 3));
  }
  return lines;
}

std::string unquoted(const std::string& value) {
  if (value.size() < 2 || value.front() != '"' || value.back() != '"') return value;
  const json j = parse_json_or_discard<json>(value);  // what we write is a JSON string, too
  return j.is_string() ? j.get<std::string>() : value.substr(1, value.size() - 2);
}

std::string record_json(const RunRecord& r) {
  const RunStatus& s = r.status;
  ordered_json j = {{"schema", 1},
                    {"run", r.name},
                    {"state", run_state_name(s.state)},
                    {"message", s.message},
                    {"exit_code", nullptr},
                    {"command", s.command},
                    {"command_line", r.command_line},
                    {"directory", r.directory},
                    {"version", r.version},
                    {"commit", r.commit},
                    {"device", r.device},
                    {"seed", nullptr},
                    {"host", s.host},
                    {"pid", s.pid},
                    {"pid_start", s.pid_start},
                    {"started_utc", s.started_utc},
                    {"ended_utc", nullptr}};
  if (r.exit_code) j["exit_code"] = *r.exit_code;
  if (!r.ended_utc.empty()) j["ended_utc"] = r.ended_utc;
  j["config"] = config_json(r.config);
  if (j["config"].contains("seed")) j["seed"] = j["config"]["seed"];
  j["files"] = files_json(r.files);
  const RunTotals& t = r.totals;
  j["metrics"] = {{"steps_planned", s.steps},
                  {"step", s.last.step},
                  {"first_loss", t.first_loss},
                  {"loss", s.last.loss},
                  {"smoothed_loss", s.last.smoothed_loss},
                  {"lowest_loss", step_loss_json(t.lowest)},
                  {"lowest_smoothed_loss", t.lowest_smoothed},
                  {"grad_norm", s.last.grad_norm},
                  {"largest_grad_norm", nullptr},
                  {"held_out", step_loss_json({s.held_out_step, s.held_out_loss})},
                  {"first_held_out", step_loss_json(t.first_held_out)},
                  {"best_held_out", step_loss_json(t.best_held_out)},
                  {"tokens", t.tokens},
                  {"response_tokens", t.response_tokens},
                  {"seconds", t.seconds},
                  {"tokens_per_second", t.seconds > 0 ? double(t.tokens) / t.seconds : 0.0},
                  {"skipped", t.skipped}};
  if (t.largest_grad.step > 0) {
    j["metrics"]["largest_grad_norm"] = {{"step", t.largest_grad.step},
                                         {"norm", t.largest_grad.loss}};
  }
  if (t.kept_tokens > 0) {
    j["metrics"]["taught_loss"] = t.taught_loss;
    j["metrics"]["kept_loss"] = t.kept_loss;
    j["metrics"]["largest_kept_loss"] = t.largest_kept;
    j["metrics"]["kept_tokens"] = t.kept_tokens;
  }
  j["memory"] = {{"peak_rss_bytes", r.memory.peak_rss_bytes},
                 {"peak_gpu_mib", r.memory.peak_gpu_mib},
                 {"arenas", ordered_json::array()}};
  for (const auto& [name, bytes] : r.memory.arenas) {
    j["memory"]["arenas"].push_back({{"name", name}, {"peak_bytes", bytes}});
  }
  j["gates"] = gates_json(r.gates);
  j["collapses"] = r.collapses;
  j["warnings"] = r.warnings;
  j["self_test"] = self_test_json(r.self_test);
  j["continues"] = nullptr;
  if (!r.continues.empty()) j["continues"] = {{"run", r.continues}, {"step", r.continued_at}};
  j["checkpoint"] = s.checkpoint;
  j["output"] = s.output;
  j["chain"] = nullptr;
  if (r.chain) {
    j["chain"] = {{"name", r.chain->chain},
                  {"stage", r.chain->stage},
                  {"stages", r.chain->stages},
                  {"stage_name", r.chain->stage_name}};
  }
  return j.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

RunRecord read_record(const fs::path& folder) {
  RunRecord record;
  const fs::path plain = fs::absolute(folder).lexically_normal();
  record.name = (plain.has_filename() ? plain : plain.parent_path()).filename().string();
  // First the process, then what it wrote: a run that ends between the two is not taken for dead.
  const ProcessState process = process_state(folder, read_status(folder));
  record.status = read_status(folder);
  record.gone = record.status.state == RunState::running && process == ProcessState::gone;
  record.config = config_lines(text_or_empty(folder / "config.toml"));
  const json j = parse_json_or_discard<json>(text_or_empty(folder / "run.json"));
  if (j.is_object()) {
    read_into(record, j);
  } else if (std::error_code none; fs::exists(folder / "run.json", none)) {
    log_warning("{} is damaged: what the other files of the run say is shown",
                (folder / "run.json").string());
  }
  if (record.command_line.empty()) {  // of a version without run.json
    const std::string text = text_or_empty(folder / "command.txt");
    record.command_line = text.substr(0, text.find('\n'));
  }
  for (const CollapseEvent& e : read_collapses(folder)) record.collapses.push_back(e.text());
  record.gates = read_gates(folder);
  if (record.gates.size() > 2) record.gates = {record.gates.front(), record.gates.back()};
  std::error_code ec;
  record.pinned = fs::exists(folder / kPinFile, ec);
  return record;
}

std::vector<RunRecord> read_records(const fs::path& base) {
  std::vector<RunRecord> records;
  for (const fs::path& folder : list_runs(base)) {
    try {
      records.push_back(read_record(folder));
    } catch (const Error& e) {
      log_warning("left out: {}", e.what());
    }
  }
  return records;
}

}  // namespace nibble
