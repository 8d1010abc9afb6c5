// SPDX-License-Identifier: MIT
// nibble runs try: what a run has learned so far, asked of its newest sound checkpoint while it
// goes on, or of its export. Only files are read: no lock of the run is taken.
#include <ostream>

#include "apps/runs/runs_actions.h"
#include "apps/terminal/output_buffer.h"
#include "convert/checkpoint_model.h"
#include "core/log.h"
#include "generate/engine.h"
#include "generate/generator.h"
#include "generate/reply_report.h"
#include "runlog/run_folder.h"
#include "runtime/model_template.h"
#include "runtime/runtime.h"
#include "tokenizer/chat_template.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;

// What there is to ask, the newest first.
fs::path newest_model(const fs::path& folder, const RunRecord& r) {
  std::error_code ec;
  const fs::path exported = r.status.output;
  if (!exported.empty() && fs::exists(exported, ec)) return exported;
  // Where the run keeps them, and where one whose record knows of none yet would.
  for (const fs::path& place : {fs::path(r.status.checkpoint).parent_path(), folder / "checkpoints",
                                fs::path(r.setting("checkpoint-dir"))}) {
    if (place.empty()) continue;
    if (const auto file = find_checkpoint(place)) return *file;
  }
  throw_format(
      "{} has nothing to ask yet: no checkpoint and no exported model; --save-every-steps N or "
      "--save-every-minutes M of its command writes some",
      r.name);
}

}  // namespace

ExitCode try_run(const RunsOptions& o, Io& io) {
  const fs::path folder = find_run(o.runs_dir, o.runs.empty() ? "latest" : o.runs.front());
  const RunRecord record = read_record(folder);
  const bool goes_on = record.status.state == RunState::running && !record.gone;
  RuntimeOptions runtime;
  runtime.model.model = newest_model(folder, record);
  const std::string device = o.device.value_or(goes_on ? "cpu" : "auto");
  const std::string wrong = parse_device(device, runtime.device);
  if (!wrong.empty()) throw_usage("--device: '{}' {}", device, wrong);
  log_info(
      "{} is asked{}", runtime.model.model.string(),
      goes_on ? fmt::format("; {} goes on, at step {}", record.name, record.status.last.step) : "");
  const CacheOptions cache;
  const Runtime rt = open_runtime(runtime, TokenizerNeed::required, &cache);
  const ChatOptions chat{choose_template("", rt.paths.tokenizer), GenerationPrompt::yes, {}};
  const std::vector<int32_t> ids =
      encode_chat(rt.require_tokenizer(), std::vector<Message>{{Role::user, o.prompt}}, {}, chat,
                  ContentTokens::plain);
  Engine engine(*rt.backend, rt.model, rt.engine_options(cache));
  GenerateOptions g;
  g.max_tokens = o.max_tokens;
  g.stop_ids = rt.stop_ids();
  const GenerateResult result = generate(engine, ids, g);
  io.out << rt.require_tokenizer().decode(result.ids) << "\n";
  return report_finish(result.reason);
}

}  // namespace nibble
