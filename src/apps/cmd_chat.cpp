// SPDX-License-Identifier: MIT
// nibble chat: a conversation, typed, piped or scripted.
#include <iostream>
#include <memory>

#include "apps/chat/chat_options.h"
#include "apps/chat/chat_talk.h"
#include "apps/command.h"
#include "core/log.h"
#include "eval/scenario.h"
#include "generate/chat_log.h"
#include "runtime/output_files.h"

namespace nibble {
namespace {

std::vector<std::string> scripted_turns(const ChatCommandOptions& o) {
  if (o.script == "predecessor") {
    return predecessor_scenario(o.prompt.value_or("Write one short sentence about UFO and you."),
                                o.stop_here ? ScenarioEnd::stop_here : ScenarioEnd::goes_on);
  }
  std::vector<std::string> turns;
  if (o.prompt) turns.push_back(*o.prompt);
  if (!o.script.empty()) {
    for (std::string& t : read_scenario(o.script)) turns.push_back(std::move(t));
  } else {
    for (int64_t i = 1; i < o.turns; ++i) turns.push_back(o.followup);
  }
  return turns;
}

void check_flags(const ChatCommandOptions& o) {
  if (!o.script.empty() && o.turns > 1)
    throw_usage("--turns and --script both script the conversation; give one");
  if (o.turns > 1 && !o.prompt) throw_usage("--turns needs --prompt, the first turn");
  if (!o.replay.empty() && (o.prompt || !o.script.empty() || !o.system.empty())) {
    throw_usage(
        "--replay takes its messages from the file; leave out --prompt, --script, --system");
  }
}

ExitCode run_chat(const ChatCommandOptions& o, Io& io) {
  check_flags(o);
  const std::vector<std::string> turns = scripted_turns(o);
  const bool scripted = !turns.empty() || !o.replay.empty();
  const bool interactive = o.interactive.value_or(!scripted);
  const ModelPaths paths = resolve_model(o.runtime.model, TokenizerNeed::required);
  for (const auto& log : {o.tee, o.tee_jsonl}) {
    check_output_file(log, o.force ? Overwrite::allow : Overwrite::refuse, paths, {o.replay});
    if (!log.empty()) touch_log(log);  // before the model is loaded, not after the first reply
  }
  // Before the model is loaded: what is typed meanwhile waits whole for the first prompt.
  const auto editor = interactive && &io.in == &std::cin ? LineEditor::open() : nullptr;
  if (editor) editor->use_history(o.history_file());
  const Runtime rt = open_runtime(o.runtime, TokenizerNeed::required, &o.cache);
  log_sampling(o.generate.sample, rt.generation);
  o.escapes.apply(io.out);
  LiveChat chat(o, rt, io);
  bool goes_on = true;
  if (!o.replay.empty()) {
    ReplayedChat replayed = read_jsonl_log(o.replay);
    for (Message& m : replayed.history) chat.add(std::move(m));
    io.out << "[user] " << replayed.last_question << "\nout: ";
    goes_on = chat.ask(replayed.last_question);
  }
  for (size_t i = 0; i < turns.size() && io.out && goes_on; ++i) {
    io.out << fmt::format("[{}] {}\nout: ", i, turns[i]);
    goes_on = chat.ask(turns[i]);
  }
  if (o.check_logits) chat.check_logits();
  if (interactive) {
    if (scripted && o.reset_history) {
      chat.start();
      io.out << "[interactive] history reset after scripted rounds.\n";
    } else if (!goes_on) {
      return chat.code();
    }
    talk(chat, editor.get(), io);
  }
  return chat.code();
}

}  // namespace

Command chat_command() {
  return make_command<ChatCommandOptions>(
      "chat", "Talk to a model",
      "Without scripted turns it reads user turns: at a terminal with line editing, history and "
      "commands (/help lists them), from a pipe one a line, until the end of input. The cache is "
      "kept across turns, so each turn computes only what is new.",
      run_chat);
}

}  // namespace nibble
