// SPDX-License-Identifier: MIT
#include "runlog/run_status.h"

#include <unistd.h>

#include "core/durable/file_lock.h"
#include "core/error.h"
#include "core/file.h"
#include "core/json.h"

namespace nibble {
namespace {

constexpr std::pair<RunState, std::string_view> kStates[] = {
    {RunState::running, "running"},     {RunState::finished, "finished"},
    {RunState::failed, "failed"},       {RunState::interrupted, "interrupted"},
    {RunState::collapsed, "collapsed"},
};

std::string own_host() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "";
}

}  // namespace

std::string_view run_state_name(RunState state) {
  for (const auto& [s, name] : kStates) {
    if (s == state) return name;
  }
  return "?";
}

std::optional<RunState> parse_run_state(std::string_view name) {
  for (const auto& [s, text] : kStates) {
    if (text == name) return s;
  }
  return std::nullopt;
}

std::string status_json(const RunStatus& s) {
  nlohmann::ordered_json j = {{"state", run_state_name(s.state)},
                              {"command", s.command},
                              {"message", s.message},
                              {"pid", s.pid},
                              {"pid_start", s.pid_start},
                              {"host", s.host},
                              {"started_utc", s.started_utc},
                              {"updated_utc", s.updated_utc},
                              {"step", s.last.step},
                              {"steps", s.steps},
                              {"eta_seconds", s.eta_seconds},
                              {"held_out_step", s.held_out_step},
                              {"held_out_loss", s.held_out_loss},
                              {"checkpoint", s.checkpoint},
                              {"checkpoint_model", s.checkpoint_model},
                              {"output", s.output}};
  j["last"] = parse_json<nlohmann::ordered_json>(metrics_line(s.last));
  return j.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

RunStatus read_status(const std::filesystem::path& run_folder) {
  const std::filesystem::path file = run_folder / "status.json";
  std::error_code ec;
  if (!std::filesystem::exists(file, ec)) {
    throw_format("{} is not a run: it has no status.json", run_folder.string());
  }
  const auto j = parse_json_or_discard<nlohmann::json>(read_text_file(file, 1 << 20));
  RunStatus s;
  try {
    const std::string state = j.at("state").get<std::string>();
    const auto known = parse_run_state(state);
    if (!known) throw_format("{}: unknown state '{}'", file.string(), state);
    s.state = *known;
    s.command = j.value("command", "");
    s.message = j.value("message", "");
    s.pid = j.at("pid").get<pid_t>();
    s.pid_start = j.value("pid_start", uint64_t(0));
    s.host = j.value("host", "");
    s.started_utc = j.value("started_utc", "");
    s.updated_utc = j.value("updated_utc", "");
    s.steps = j.value("steps", int64_t(0));
    const auto number = [&](const char* key) {
      return j.contains(key) && j[key].is_number() ? j[key].get<double>() : kNoValue;
    };
    s.eta_seconds = number("eta_seconds");
    s.held_out_step = j.value("held_out_step", int64_t(0));
    s.held_out_loss = number("held_out_loss");
    s.checkpoint = j.value("checkpoint", "");
    s.checkpoint_model = j.value("checkpoint_model", "");
    s.output = j.value("output", "");
    s.last = parse_metrics_line(j.at("last").dump()).value_or(StepRecord{});
  } catch (const nlohmann::json::exception& e) {
    throw_format("{}: not the status of a run: {}", file.string(), e.what());
  }
  return s;
}

void set_own_process(RunStatus& status) {
  status.pid = ::getpid();
  const auto self = read_process(status.pid);
  status.pid_start = self ? self->start_ticks : 0;
  status.host = own_host();
}

std::optional<ProcessInfo> process_of(const RunStatus& status) {
  if (status.host != own_host()) return std::nullopt;
  auto p = read_process(status.pid);
  if (!p || !p->alive() || p->start_ticks != status.pid_start) return std::nullopt;
  return p;
}

ProcessState process_state(const std::filesystem::path& folder, const RunStatus& status) {
  switch (lock_state(lock_in(folder))) {
    case LockState::held: return ProcessState::alive;
    case LockState::free: return ProcessState::gone;
    case LockState::unknown: return ProcessState::on_another_host;  // it cannot be told from here
    case LockState::absent: break;
  }
  if (status.host != own_host()) return ProcessState::on_another_host;
  return process_of(status) ? ProcessState::alive : ProcessState::gone;
}

}  // namespace nibble
