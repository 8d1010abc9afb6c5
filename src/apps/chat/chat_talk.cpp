// SPDX-License-Identifier: MIT
#include "apps/chat/chat_talk.h"

#include <unistd.h>

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <optional>

#include "apps/chat/slash_commands.h"
#include "apps/terminal/standard_input.h"
#include "core/text/visible.h"
#include "guard/interrupt.h"

namespace nibble {
namespace {

constexpr std::string_view kPrompt = "> ";

// Ctrl+C is a key while a line is typed and a signal while a reply comes. The guard is there before
// and after: pressed a moment too early or too late it must not end the program.
class Interruptible {
 public:
  explicit Interruptible(LineEditor* editor) : editor_(editor) {
    if (editor_ == nullptr) return;
    guard_.emplace(TerminateIs::end);
    editor_->let_signals(true);
  }
  ~Interruptible() {
    if (editor_ != nullptr) editor_->let_signals(false);
  }
  Interruptible(const Interruptible&) = delete;
  Interruptible& operator=(const Interruptible&) = delete;

 private:
  LineEditor* editor_;
  std::optional<InterruptGuard> guard_;
};

class Talk {
 public:
  Talk(LiveChat& chat, LineEditor* editor, Io& io)
      : chat_(chat),
        editor_(editor),
        io_(io),
        terminal_(editor != nullptr || (&io.in == &std::cin && isatty(STDIN_FILENO) != 0)) {}

  void run() {
    if (terminal_) io_.out << "進入互動模式 / interactive. /help shows the commands.\n";
    std::string text;
    while (io_.out && next(text)) {
      const Typed typed = read_typed(text, terminal_);
      if (typed.kind == Typed::Kind::nothing) continue;
      if (editor_ != nullptr) editor_->remember(text);
      const Interruptible during(editor_);
      try {
        if (!obey(typed)) break;
      } catch (const Error& e) {
        // A pipe has nobody who could do something else. A person has: /reset, another file, ...
        if (!terminal_) throw;
        io_.out << "error: " << e.what() << "\n";
        if (dynamic_cast<const ContextFull*>(&e) != nullptr && !chat_.messages().empty()) {
          io_.out << "/reset or /undo makes room; with --on-full slide the oldest turns go by "
                     "themselves\n";
        }
      }
    }
  }

 private:
  bool next(std::string& text) {
    io_.out << std::flush;
    if (editor_ == nullptr) {
      if (terminal_) io_.out << kPrompt << std::flush;
      if (!read_line(io_.in, text)) {
        if (terminal_) io_.out << "\n";
        return false;
      }
      if (!text.empty() && text.back() == '\r') text.pop_back();
      return true;
    }
    for (bool again = false;; again = true) {
      switch (editor_->read(kPrompt, text)) {
        case LineEditor::Got::text: return true;
        case LineEditor::Got::end: return false;
        case LineEditor::Got::interrupt:
          if (again) return false;
          io_.out << "Ctrl+C once more, or Ctrl+D, leaves.\n" << std::flush;
      }
    }
  }

  // False: the talk is over.
  bool obey(const Typed& typed) {
    if (typed.kind == Typed::Kind::said) return chat_.ask(typed.text);
    if (typed.kind == Typed::Kind::unknown) {
      io_.out << unknown_answer(typed.text);
      return true;
    }
    switch (typed.command) {
      case Slash::help: io_.out << slash_help(); break;
      case Slash::exit: return false;
      case Slash::reset:
        chat_.start();
        io_.out << "[interactive] history reset.\n";
        break;
      case Slash::stats:
        io_.out << fmt::format("{} tokens in the conversation, room for {} more\n",
                               chat_.context_tokens(), chat_.room());
        break;
      case Slash::system: set_system(typed.text); break;
      case Slash::temp: set_temperature(typed.text); break;
      case Slash::undo: undo(); break;
      case Slash::regen: return regenerate();
      case Slash::save: save(typed.text); break;
      case Slash::load: load(typed.text); break;
    }
    return true;
  }

  void set_system(const std::string& text) {
    if (!text.empty()) chat_.set_system(text == "\"\"" ? "" : block_or_text(text));
    io_.out << (chat_.system().empty()
                    ? "no system message\n"
                    : fmt::format("system message: {}\n", visible_text(chat_.system())));
  }

  void set_temperature(const std::string& text) {
    if (!text.empty()) {
      double t = 0;
      const auto [end, wrong] = std::from_chars(text.data(), text.data() + text.size(), t);
      if (wrong != std::errc() || end != text.data() + text.size() || !std::isfinite(t)) {
        throw_usage("/temp {}: not a number; /temp 0.7 for example, 0 is greedy",
                    visible_line(text));
      }
      chat_.set_temperature(t);
    }
    const double now = chat_.temperature();
    io_.out << fmt::format("temperature {:g}{}\n", now, now <= 0 ? " (greedy)" : "");
  }

  void undo() {
    const auto question = chat_.take_back();
    io_.out << (question ? fmt::format("taken back: {}\n", visible_line(beginning(*question)))
                         : "there is nothing to take back\n");
  }

  bool regenerate() {
    bool goes_on = true;
    if (!chat_.regenerate(goes_on)) io_.out << "there is no question to answer again\n";
    return goes_on;
  }

  void save(std::string name) {
    Existing existing = Existing::keep;
    if (name.starts_with(kForceWord)) {
      existing = Existing::replace;
      name.erase(0, kForceWord.size());
    }
    if (name.empty()) throw_usage("/save needs a FILE to write the conversation to");
    const std::filesystem::path file = at_home(name);
    if (existing == Existing::keep && std::filesystem::exists(file)) {
      throw_usage("{} exists; /save --force {} replaces it", visible_line(name),
                  visible_line(name));
    }
    chat_.save(file, existing);
    io_.out << fmt::format("saved {} messages, {} tokens; /load {} goes on with them\n",
                           chat_.messages().size(), chat_.context_tokens(), visible_line(name));
  }

  void load(const std::string& name) {
    if (name.empty()) throw_usage("/load needs the FILE that /save wrote");
    chat_.load(at_home(name));
    io_.out << fmt::format("loaded {} messages, {} tokens\n", chat_.messages().size(),
                           chat_.context_tokens());
    // Where one is: the last question and its answer.
    const auto& all = chat_.messages();
    for (size_t i = all.size() < 2 ? 0 : all.size() - 2; i < all.size(); ++i) {
      io_.out << fmt::format("[{}] {}\n", role_name(all[i].role),
                             visible_line(beginning(all[i].content)));
    }
  }

  static std::string beginning(const std::string& text) {
    constexpr size_t kMost = 200;
    const std::string_view some = std::string_view(text).substr(0, kMost);
    return std::string(some.substr(0, whole_characters(some))) + (text.size() > kMost ? "..." : "");
  }
  static std::filesystem::path at_home(const std::string& name) {
    const char* const home = std::getenv("HOME");
    return name.starts_with("~/") && home != nullptr ? std::filesystem::path(home) / name.substr(2)
                                                     : std::filesystem::path(name);
  }

  LiveChat& chat_;
  LineEditor* editor_;
  Io& io_;
  bool terminal_;
};

}  // namespace

void talk(LiveChat& chat, LineEditor* editor, Io& io) {
  if (editor != nullptr) editor->use_hooks({is_unfinished, complete_typed});
  Talk(chat, editor, io).run();
}

}  // namespace nibble
