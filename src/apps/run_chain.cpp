// SPDX-License-Identifier: MIT
#include "apps/run_chain.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <ostream>
#include <set>

#include "core/durable/file_lock.h"
#include "core/file.h"
#include "core/log.h"
#include "core/sha256.h"
#include "core/utc_time.h"
#include "guard/interrupt.h"
#include "runlog/chain_record.h"
#include "runlog/run_folder.h"
#include "runlog/run_recorder.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;

constexpr std::array kModelKeys = {"model", "weight", "model-dir", "init-file"};

// The options that name the first stage's model or the last one's output, whatever they are called.
bool names_model(const Field& f) {
  return std::ranges::find(kModelKeys, f.key()) != kModelKeys.end();
}

// A stage with its options filled in, all but the model that comes from the stage before it.
struct Stage {
  const ConfigStage* config = nullptr;
  const Command* command = nullptr;
  std::unique_ptr<CommandBody> body;
  size_t number = 0;

  Fields& fields() const { return body->fields(); }
  Field& field(const char* flag) const {
    Field* f = fields().find(flag);
    if (!f) throw_internal("{} has no option {}", command->name, flag);
    return *f;
  }
  void set(const char* flag, const std::string& value) const {
    Field& f = field(flag);
    const std::string wrong = f.set(value);
    if (!wrong.empty()) throw_usage("{}: {} '{}' {}", config->place, flag, value, wrong);
    f.given_as = config->place;
  }
  std::string text(const char* flag) const { return unquoted(field(flag).toml()); }
  const char* input_flag() const { return command->name == "pretrain" ? "--init-file" : "--model"; }
  std::string toml() const {
    return fmt::format("command = \"{}\"\n{}", command->name, fields().to_toml());
  }
};

const Command& stage_command(const ConfigStage& stage, const std::string& otherwise) {
  const std::string& name = stage.command.empty() ? otherwise : stage.command;
  for (const Command& c : commands()) {
    if (c.name == name && (name == "train" || name == "pretrain")) return c;
  }
  throw_usage("{}: command: '{}' cannot be a stage: use train or pretrain", stage.place, name);
}

class Chain {
 public:
  Chain(const ChainRequest& request, Io& io);
  void print() const;
  ExitCode run();

 private:
  Stage prepare(const ConfigStage& config, size_t number) const;
  void check_keys() const;
  void open_record();
  void go_on_with(const fs::path& file);
  void write_record();
  ExitCode run_stage(Stage& stage, StageRecord& record);
  bool last(const Stage& s) const { return s.number == request_.config.stages.size(); }

  const ChainRequest& request_;
  Io& io_;
  std::vector<Stage> stages_;
  fs::path runs_dir_, folder_;
  ChainRecord record_;
  std::optional<FileLock> lock_;  // of the folder
};

void refuse(const ConfigKey& k, const std::string& why) {
  throw_usage("{}: not in a chain: {}", k.where(), why);
}

// Keys that are the chain's own affair. Every key above the stages must mean something to one.
void Chain::check_keys() const {
  const RunConfig& c = request_.config;
  const char* const checkpoints =
      "each stage has checkpoints of its own, and the same command goes on where it stopped";
  std::set<std::string> names;
  for (const ConfigStage& s : c.stages) {
    if (!names.insert(s.name).second) throw_usage("{}: two stages have this name", s.place);
    for (const ConfigKey& k : s.keys) {
      if (k.key == "resume" || k.key == "checkpoint-dir") refuse(k, checkpoints);
      if (k.key == "run-name") refuse(k, "a stage has a name; run-name above is the chain's");
      if (k.key == "runs-dir") refuse(k, "all its runs are in one place: write it above");
    }
  }
  for (const ConfigKey& k : c.keys) {
    if (k.key == "resume" || k.key == "checkpoint-dir") refuse(k, checkpoints);
    const bool known = std::ranges::any_of(c.stages, [&](const ConfigStage& s) {
      const auto body = stage_command(s, request_.command).make();
      return find_key(body->fields(), k.key) != nullptr;
    });
    if (known) continue;
    const Command& command = stage_command(c.stages.front(), request_.command);
    const auto body = command.make();
    throw_usage("{}: {}", k.place, request_.explain("--" + k.key, command.name, body->fields()));
  }
}

Stage Chain::prepare(const ConfigStage& config, size_t number) const {
  Stage s;
  s.config = &config;
  s.number = number;
  s.command = &stage_command(config, request_.command);
  s.body = s.command->make();
  Fields& fields = s.fields();
  const auto explain = [&](const std::string& flag) {
    return request_.explain(flag, s.command->name, fields);
  };
  const auto elsewhere = [&](const Field& f) {
    if (f.key() == "run-name") return true;
    return (number > 1 && names_model(f)) || (!last(s) && f.key() == "output");
  };
  try {
    parse_arguments(fields, arguments_without(fields, request_.args, elsewhere), explain);
  } catch (const UsageError& e) {
    throw_usage("{}: {}", config.place, e.what());
  }
  if (fields.find("--resume")->given() || fields.find("--checkpoint-dir")->given()) {
    throw_usage(
        "a chain goes on where it stopped by itself: without --resume and --checkpoint-dir");
  }
  for (const ConfigKey& k : config.keys) {
    const Field* f = find_key(fields, k.key);
    if (f && number > 1 && names_model(*f)) {
      refuse(k, fmt::format("the model of stage {} is the output of stage {}", number, number - 1));
    }
  }
  apply_config_keys(fields, config.keys, explain);
  std::vector<ConfigKey> common;
  for (const ConfigKey& k : request_.config.keys) {
    const Field* f = find_key(fields, k.key);
    if (f && !elsewhere(*f)) common.push_back(k);
  }
  apply_config_keys(fields, common, explain, UnknownKeys::skip);
  if (!last(s) && s.field("--export").toml() == "false") {
    throw_usage("{}: export: false, but the next stage starts from this one's output",
                config.place);
  }
  try {
    check_required(fields, s.command->name);
  } catch (const UsageError& e) {
    throw_usage("{}: {}", config.place, e.what());
  }
  return s;
}

Chain::Chain(const ChainRequest& request, Io& io) : request_(request), io_(io) {
  const RunConfig& c = request.config;
  if (!c.command.empty() && c.command != request.command) {
    throw_usage("{}: command says '{}', but the command given is '{}'", c.file.string(), c.command,
                request.command);
  }
  check_keys();
  for (size_t i = 0; i < c.stages.size(); ++i) stages_.push_back(prepare(c.stages[i], i + 1));

  // The chain's name: from the command line, the file, or the file's name.
  record_.name = c.file.stem().string();
  for (const ConfigKey& k : c.keys) {
    if (k.key == "run-name") record_.name = k.texts.empty() ? "" : k.texts.front();
  }
  const auto body = stages_.front().command->make();
  parse_arguments(body->fields(), request.args, [](const std::string& flag) { return flag; });
  if (const Field* f = body->fields().find("--run-name"); f->given()) {
    record_.name = unquoted(f->toml());
  }
  runs_dir_ = stages_.front().text("--runs-dir");
  folder_ = runs_dir_ / record_.name;
  record_.file = fs::absolute(c.file).lexically_normal().string();
}

void Chain::print() const {
  for (const Stage& s : stages_) {
    io_.out << fmt::format("# stage {}: {}{}\n{}\n", s.number, s.config->name,
                           s.number > 1 ? ", from the output of the one before" : "", s.toml());
  }
}

void Chain::open_record() {
  const fs::path file = folder_ / "chain.json";
  std::error_code ec;
  const auto lock = [&] {
    lock_ = FileLock::take(lock_in(folder_));
    if (!lock_) {
      throw_usage("the chain {} is running already ({}); a second one needs another --run-name",
                  record_.name, lock_holder(lock_in(folder_)));
    }
  };
  // Without its record, what a power cut may leave, a folder of chains still has its stages.
  if (fs::exists(file, ec) || fs::exists(folder_ / "chain.toml", ec)) {
    lock();
    go_on_with(file);
  } else if (fs::exists(folder_, ec) && !fs::is_empty(folder_, ec)) {
    throw_usage("{} exists and is not a chain: name this one with --run-name", folder_.string());
  } else {
    if (!fs::exists(folder_, ec)) folder_ = create_run_folder(runs_dir_, record_.name);
    lock();
    record_.process.started_utc = utc_now_text();
  }
  record_.stages.resize(stages_.size());
  set_own_process(record_.process);
  replace_file(folder_ / "chain.toml", read_text_file(request_.config.file));
  write_record();
}

void Chain::go_on_with(const fs::path& file) {
  record_.process.started_utc = utc_now_text();
  std::error_code ec;
  if (!fs::exists(file, ec)) return;
  try {
    const ChainRecord before = read_chain(file);
    record_.process.started_utc = before.process.started_utc;
    record_.stages = before.stages;
    log_info("going on with the chain {}", folder_.string());
  } catch (const FormatError& e) {
    fs::path aside = file;
    aside += ".damaged";
    rename_durably(file, aside, Existing::replace);
    log_warning("{}; it is set aside as {}, and the chain goes on from its checkpoints", e.what(),
                aside.string());
  }
}

void Chain::write_record() {
  record_.process.updated_utc = utc_now_text();
  replace_file(folder_ / "chain.json", chain_json(record_));
}

// A name no folder has yet, so that the folder of the run is known.
std::string free_name(const fs::path& base, const std::string& name) {
  std::error_code ec;
  std::string free = name;
  for (int i = 2; fs::exists(base / free, ec); ++i) free = fmt::format("{}-{}", name, i);
  return free;
}

ExitCode Chain::run_stage(Stage& s, StageRecord& record) {
  const std::string settings = settings_that_matter(s.toml());
  if (still_finished(record, settings)) {
    log_info("stage {} ({}) is done: {}", s.number, s.config->name, record.output);
    return ExitCode::ok;
  }
  const std::string key = sha256_hex(settings).substr(0, 12);
  if (s.command->name == "pretrain" && !s.field("--init-file").given() &&
      !s.field("--output").given()) {
    s.set("--init-file", (folder_ / fmt::format("start-{}.safetensors", key)).string());
  }
  const fs::path checkpoints = folder_ / fmt::format("checkpoints-{}-{}", s.number, key);
  s.set("--checkpoint-dir", checkpoints.string());
  std::error_code ec;
  if (fs::exists(checkpoints, ec) && !fs::is_empty(checkpoints, ec)) s.set("--resume", "true");
  const std::string run =
      free_name(runs_dir_, fmt::format("{}-{}-{}", record_.name, s.number, s.config->name));
  s.set("--run-name", run);

  record.name = s.config->name;
  record.command = s.command->name;
  record.state = "running";
  record.settings = settings;
  record.files.clear();
  record.output.clear();
  record.exit_code = 0;
  record.runs.push_back(run);
  write_record();
  log_info("stage {} of {}: {}", s.number, stages_.size(), s.config->name);
  set_chain_place(ChainPlace{record_.name, s.config->name, int(s.number), int(stages_.size())});
  const auto failed = [&](ExitCode code) {
    set_chain_place({});
    record.state = "failed";
    record.exit_code = int(code);
    record_.process.state = RunState::failed;
    write_record();
  };
  ExitCode code = ExitCode::internal;
  try {
    Io stage_io{io_.in, io_.out, io_.err, s.toml(), true};
    code = s.body->run(stage_io);
  } catch (const Error& e) {
    failed(e.code());
    throw Error(e.code(), fmt::format("{}: {}", s.config->place, e.what()));
  } catch (...) {
    failed(ExitCode::internal);
    throw;
  }
  if (code != ExitCode::ok && !was_interrupted(code)) {
    failed(code);
    return code;
  }
  set_chain_place({});
  const RunRecord done = read_record(runs_dir_ / run);
  record.state = run_state_name(done.status.state);
  record.files = done.files;
  record.output = done.status.output;
  if (record.state != "finished") record_.process.state = RunState::interrupted;
  write_record();
  return code;
}

ExitCode Chain::run() {
  open_record();
  std::string output;
  for (Stage& s : stages_) {
    StageRecord& record = record_.stages[s.number - 1];
    if (s.number > 1) s.set(s.input_flag(), output);
    const ExitCode code = run_stage(s, record);
    if (code != ExitCode::ok && !was_interrupted(code)) {
      io_.out << fmt::format("chain {}: stage {} ({}) failed with exit code {}\n", record_.name,
                             s.number, s.config->name, int(code));
      return code;
    }
    if (record.state != "finished") {
      io_.out << fmt::format(
          "chain {}: stage {} ({}) was interrupted; the same command goes on from there\n",
          record_.name, s.number, s.config->name);
      return code;
    }
    output = record.output;
  }
  record_.process.state = RunState::finished;
  write_record();
  io_.out << fmt::format("chain {}: {} stages done, {}\n", record_.name, stages_.size(),
                         output.empty() ? folder_.string() : output);
  return ExitCode::ok;
}

}  // namespace

ExitCode run_chain(const ChainRequest& request, Io& io) {
  Chain chain(request, io);
  if (request.print_config) {
    chain.print();
    return ExitCode::ok;
  }
  return chain.run();
}

}  // namespace nibble
