// SPDX-License-Identifier: MIT
// nibble chat: a conversation, typed, piped or scripted.
#include <unistd.h>

#include <iostream>

#include "apps/command.h"
#include "apps/options/generate_options.h"
#include "apps/options/runtime_options.h"
#include "apps/options/template_options.h"
#include "apps/terminal/standard_input.h"
#include "core/log.h"
#include "eval/scenario.h"
#include "generate/chat_log.h"
#include "generate/chat_session.h"
#include "generate/health.h"
#include "generate/reply_report.h"
#include "guard/interrupt.h"
#include "guard/watchdog.h"
#include "runtime/model_template.h"
#include "runtime/output_files.h"
#include "runtime/runtime.h"

namespace nibble {
namespace {

struct ChatCommandOptions {
  RuntimeOptions runtime;
  std::optional<std::string> prompt;
  std::string followup = "continue.";
  int64_t turns = 1;
  std::string script;
  bool stop_here = true;
  std::filesystem::path replay, tee, tee_jsonl;
  bool force = false;
  std::optional<bool> interactive;
  bool reset_history = true;
  std::string system;
  ChatSessionOptions session;
  TemplateFlags written;
  GenerateFlags generate;
  EscapesFlag escapes;
  CacheOptions cache;
  bool timing = false, check_logits = false, print_ids = false;

  void visit_fields(Fields& f);
};

void ChatCommandOptions::visit_fields(Fields& f) {
  nibble::visit_fields(runtime, f);
  f.section("Conversation");
  f.add(prompt, {.flag = "--prompt",
                 .help = "The first user turn",
                 .value = "TEXT",
                 .aliases = {"-p"},
                 .common = true});
  f.add(turns, {.flag = "--turns",
                .help = "Scripted turns: --prompt, then --followup-prompt again and again",
                .value = "N",
                .least = 1});
  f.add(followup, {.flag = "--followup-prompt",
                   .help = "What is said from the second of --turns on",
                   .value = "TEXT"});
  f.add(script,
        {.flag = "--script",
         .help = "User turns from a file, one a line; `predecessor` is its eight-turn scenario",
         .value = "FILE|predecessor"});
  f.add(stop_here, {.flag = "--stop-here",
                    .help = "End --script predecessor after its eight turns; false asks two more"});
  f.add(replay,
        {.flag = "--replay",
         .help = "Take a conversation from a --tee-jsonl file and answer its last question anew",
         .value = "FILE",
         .aliases = {"--prompt-from-chat-session"}});
  f.add(interactive,
        {.flag = "--interactive",
         .help = "Go on typing after the scripted turns; default: when nothing is scripted",
         .aliases = {"--ifInteractive"}});
  f.add(reset_history,
        {.flag = "--interactive-reset-history", .help = "Forget the scripted turns before typing"});
  f.add(system,
        {.flag = "--system", .help = "The system message", .value = "TEXT", .common = true});
  f.add_choice(session.history,
               {.flag = "--history",
                .help = "What a later turn continues: the very tokens of the conversation, or its "
                        "messages rendered "
                        "again; both warns where they differ",
                .aliases = {"--HistoryMode"}},
               {{"tokens", HistoryMode::tokens},
                {"messages", HistoryMode::messages},
                {"both", HistoryMode::both}});
  f.add(session.persistent,
        {.flag = "--persistent", .help = "Keep the cache across turns; false computes all again"});
  written.visit_fields(f);
  generate.visit_fields(f);
  nibble::visit_fields(cache, f);
  f.section("Output");
  f.add(timing, {.flag = "--timing", .help = "Print times and tokens per second after each turn"});
  f.add(print_ids, {.flag = "--print-ids", .help = "Print the ids of each reply"});
  escapes.visit_fields(f);
  f.add(check_logits, {.flag = "--check-logits",
                       .help = "After the scripted turns, look for NaN and infinities"});
  f.add(tee, {.flag = "--tee",
              .help = "Append the conversation to a text file",
              .value = "FILE",
              .aliases = {"--tee-object-chat-session"}});
  f.add(tee_jsonl, {.flag = "--tee-jsonl",
                    .help = "Append the conversation to a JSONL file",
                    .value = "FILE",
                    .aliases = {"--tee-object-chat-session-json"}});
  f.add(force, {.flag = "--force", .help = "Append to a --tee or --tee-jsonl that exists"});
}

class ChatCommand {
 public:
  ChatCommand(const ChatCommandOptions& o, const Runtime& rt, Io& io)
      : o_(o),
        rt_(rt),
        io_(io),
        engine_(*rt.backend, rt.model, rt.engine_options(o.cache)),
        session_(engine_, rt.require_tokenizer(), session_options(o, rt)) {
    start();
  }

  void start() {
    session_.reset();
    if (!o_.system.empty()) session_.add({Role::system, o_.system});
  }
  void add(Message m) { session_.add(std::move(m)); }

  void ask(const std::string& user) {
    const size_t already = session_.messages().size();
    TurnResult r;
    {
      // Ctrl+C ends the reply, not the program; a second one in the same reply ends the program.
      const InterruptGuard interrupts(TerminateIs::end);
      const Watchdog watchdog(Watchdog::hard_limit(o_.generate.timeout_ms));
      r = session_.turn(user, o_.generate.options(rt_, o_.cache), [&](std::string_view piece) {
        io_.out << o_.escapes.shown(piece) << std::flush;
        return !InterruptGuard::requested() && io_.out;
      });
    }
    io_.out << "\n";
    if (o_.print_ids) io_.out << "ids: " << ids_text(r.generation.ids) << "\n";
    if (o_.timing) {
      io_.out << timing_line(r.generation.timing)
              << fmt::format(", {} tokens reused, {} in context\n", r.reused_tokens,
                             session_.context_tokens());
    }
    write_logs(already, r.text);
    const ExitCode code = report_finish(r.generation.reason);
    if (code != ExitCode::ok) code_ = code;
  }

  void check_logits() {
    const auto ids = encode_chat(rt_.require_tokenizer(),
                                 std::vector<Message>{{Role::user, "我上個問句是什麼?"}});
    EngineOptions small = rt_.engine_options(o_.cache);
    small.context = int64_t(ids.size());
    const ActivationHealth health = check_activations(*rt_.backend, rt_.model, small, ids);
    if (!health.first_bad) {
      io_.out << "[info] logits ok: nan=False inf=False\n";
      return;
    }
    io_.out << fmt::format("[info] not finite: {} has {}\n", health.first_bad->place,
                           health.first_bad->problem);
    code_ = ExitCode::check_failed;
  }

  ExitCode code() const { return code_; }
  int64_t context_tokens() const { return session_.context_tokens(); }
  int64_t room() const { return engine_.room(); }

 private:
  static ChatSessionOptions session_options(const ChatCommandOptions& o, const Runtime& rt) {
    ChatSessionOptions s = o.session;
    s.stop = o.generate.stop;
    s.style = choose_template(o.written.chat_template, rt.paths.tokenizer);
    s.content = o.written.content();
    s.tools = o.written.tools();
    s.thinking = o.written.enable_thinking();
    return s;
  }

  // What was asked since the last reply, and the reply.
  void write_logs(size_t already, const std::string& reply) {
    const auto& all = session_.messages();
    size_t begin = already;
    while (begin > 0 && all[begin - 1].role != Role::assistant) --begin;
    const std::vector<Message> asked(all.begin() + std::ptrdiff_t(begin), all.end() - 1);
    const std::string now = log_timestamp();
    if (!o_.tee.empty()) append_text_log(o_.tee, asked, reply, now);
    if (!o_.tee_jsonl.empty()) append_jsonl_log(o_.tee_jsonl, asked, reply, now);
  }

  const ChatCommandOptions& o_;
  const Runtime& rt_;
  Io& io_;
  Engine engine_;
  ChatSession session_;
  ExitCode code_ = ExitCode::ok;
};

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

constexpr const char* kHelp =
    "/reset forget the conversation   /stats tokens in use   /exit leave (or Ctrl+D)\n"
    "Ctrl+C ends a reply.\n";

void talk(ChatCommand& chat, Io& io) {
  const bool terminal = &io.in == &std::cin && isatty(STDIN_FILENO) != 0;
  if (terminal) io.out << "進入互動模式 / interactive. /help shows the commands.\n";
  for (std::string line;;) {
    if (terminal) io.out << "> " << std::flush;
    if (!io.out || !read_line(io.in, line)) break;
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.find_first_not_of(" \t") == std::string::npos) continue;
    if (line == "/exit" || line == "/quit") break;
    if (line == "/help") {
      io.out << kHelp;
    } else if (line == "/reset") {
      chat.start();
      io.out << "[interactive] history reset.\n";
    } else if (line == "/stats") {
      io.out << fmt::format("{} tokens in the conversation, room for {} more\n",
                            chat.context_tokens(), chat.room());
    } else if (line[0] == '/' && line.find(' ') == std::string::npos && line.size() > 1) {
      io.out << fmt::format("unknown command {}\n{}", line, kHelp);
    } else {
      try {
        chat.ask(line);
      } catch (const UsageError& e) {
        if (!terminal) throw;
        io.out << "error: " << e.what() << "\n";  // a full context: the person can /reset
      }
    }
  }
  if (terminal) io.out << "\n";
}

ExitCode run_chat(const ChatCommandOptions& o, Io& io) {
  check_flags(o);
  const std::vector<std::string> turns = scripted_turns(o);
  const ModelPaths paths = resolve_model(o.runtime.model, TokenizerNeed::required);
  for (const auto& log : {o.tee, o.tee_jsonl}) {
    check_output_file(log, o.force ? Overwrite::allow : Overwrite::refuse, paths, {o.replay});
    if (!log.empty()) touch_log(log);  // before the model is loaded, not after the first reply
  }
  const Runtime rt = open_runtime(o.runtime, TokenizerNeed::required, &o.cache);
  log_sampling(o.generate.sample, rt.generation);
  o.escapes.apply(io.out);
  ChatCommand chat(o, rt, io);
  if (!o.replay.empty()) {
    ReplayedChat replayed = read_jsonl_log(o.replay);
    for (Message& m : replayed.history) chat.add(std::move(m));
    io.out << "[user] " << replayed.last_question << "\nout: ";
    chat.ask(replayed.last_question);
  }
  for (size_t i = 0; i < turns.size() && io.out; ++i) {
    io.out << fmt::format("[{}] {}\nout: ", i, turns[i]);
    chat.ask(turns[i]);
  }
  if (o.check_logits) chat.check_logits();
  const bool scripted = !turns.empty() || !o.replay.empty();
  if (o.interactive.value_or(!scripted)) {
    if (scripted && o.reset_history) {
      chat.start();
      io.out << "[interactive] history reset after scripted rounds.\n";
    }
    talk(chat, io);
  }
  return chat.code();
}

}  // namespace

Command chat_command() {
  return make_command<ChatCommandOptions>(
      "chat", "Talk to a model",
      "Without scripted turns it reads user turns from standard input, one a line, until the end "
      "of input. The cache "
      "is kept across turns, so each turn computes only what is new.",
      run_chat);
}

}  // namespace nibble
