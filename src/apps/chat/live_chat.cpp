// SPDX-License-Identifier: MIT
#include "apps/chat/live_chat.h"

#include <ostream>

#include "core/log.h"
#include "generate/health.h"
#include "generate/reply_report.h"
#include "guard/interrupt.h"
#include "guard/watchdog.h"
#include "runtime/model_template.h"

namespace nibble {
namespace {

ChatSessionOptions session_options(const ChatCommandOptions& o, const Runtime& rt) {
  ChatSessionOptions s = o.session;
  s.stop = o.generate.stop;
  s.style = choose_template(o.written.chat_template, rt.paths.tokenizer);
  s.content = o.written.content();
  s.tools = o.written.tools();
  s.thinking = o.written.enable_thinking();
  s.slide = o.on_full == OnFull::slide;
  return s;
}

}  // namespace

LiveChat::LiveChat(const ChatCommandOptions& o, const Runtime& rt, Io& io)
    : o_(o),
      rt_(rt),
      io_(io),
      engine_(*rt.backend, rt.model, rt.engine_options(o.cache)),
      session_(engine_, rt.require_tokenizer(), session_options(o, rt)),
      logs_(o.tee, o.tee_jsonl),
      generate_(o.generate),
      system_(o.system) {
  start();
}

void LiveChat::start() {
  session_.reset();
  if (!system_.empty()) session_.add({Role::system, system_});
  logs_.begin_anew();
  regenerated_ = 0;
}

bool LiveChat::ask(const std::string& user) {
  regenerated_ = 0;
  return answer(user, 0);
}

bool LiveChat::answer(const std::string& user, uint64_t more_seed) {
  TurnResult r;
  GenerateOptions how = generate_.options(rt_, o_.cache);
  how.sample.seed += more_seed;
  how.cancel = [] { return InterruptGuard::requested(); };
  try {
    // Ctrl+C ends the reply, not the program; a second one in the same reply ends the program.
    const InterruptGuard interrupts(TerminateIs::end);
    const Watchdog watchdog(Watchdog::hard_limit(generate_.timeout_ms));
    r = session_.turn(user, how, [&](std::string_view piece) {
      io_.out << o_.escapes.shown(piece) << std::flush;
      return !InterruptGuard::requested() && io_.out;
    });
  } catch (const ContextFull& e) {
    if (o_.on_full != OnFull::stop) throw;
    io_.out << "\n" << std::flush;
    log_warning("the conversation ends here (--on-full stop): {}", e.what());
    return false;
  }
  io_.out << "\n" << std::flush;  // before any warning
  if (r.dropped > 0) {
    log_warning("the context is full: the oldest {} messages are forgotten (--on-full slide)",
                r.dropped);
    logs_.begin_anew();
  }
  if (o_.print_ids) io_.out << "ids: " << ids_text(r.generation.ids) << "\n";
  if (o_.timing) {
    io_.out << timing_line(r.generation.timing)
            << fmt::format(", {} tokens reused, {} in context\n", r.reused_tokens,
                           session_.context_tokens());
  }
  if (r.generation.reason == FinishReason::cancelled && r.text.empty()) {
    session_.undo();
    io_.out << "taken back, since nothing was said to it\n";
    return true;
  }
  logs_.add(session_.messages());
  const ExitCode code = report_finish(r.generation.reason);
  if (code != ExitCode::ok) code_ = code;
  return true;
}

std::optional<std::string> LiveChat::take_back() {
  const auto& all = session_.messages();
  size_t last = all.size();
  while (last > 0 && all[last - 1].role != Role::user) --last;
  if (last == 0) return std::nullopt;
  std::string question = all[last - 1].content;
  session_.undo();
  logs_.take_back();
  return question;
}

bool LiveChat::regenerate(bool& goes_on) {
  const uint64_t times = regenerated_ + 1;
  const auto question = take_back();
  if (!question) return false;
  goes_on = answer(*question, times);
  regenerated_ = times;
  return true;
}

void LiveChat::set_system(const std::string& text) {
  system_ = text;
  session_.set_system(text);
  logs_.begin_anew();
}

double LiveChat::temperature() const {
  return double(generate_.sample.over(rt_.generation).temperature);
}

// Once: it reads the weight files whole.
const CacheOrigin& LiveChat::origin() {
  if (!origin_) origin_ = cache_origin(rt_, engine_.options());
  return *origin_;
}

void LiveChat::save(const std::filesystem::path& file, Existing existing) {
  save_chat(file, existing, origin(), session_, engine_);
}

void LiveChat::load(const std::filesystem::path& file) {
  load_chat(file, origin(), session_, engine_);
  const auto& all = session_.messages();
  system_ = !all.empty() && all[0].role == Role::system ? all[0].content : "";
  regenerated_ = 0;
  logs_.begin_anew();
}

void LiveChat::check_logits() {
  const auto ids =
      encode_chat(rt_.require_tokenizer(), std::vector<Message>{{Role::user, "我上個問句是什麼?"}});
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

}  // namespace nibble
