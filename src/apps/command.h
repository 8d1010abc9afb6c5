// SPDX-License-Identifier: MIT
// How a command is declared. To add `nibble chat`:
//   1. src/apps/cmd_chat.cpp (and its name in CMakeLists.txt):
//        struct ChatOptions {
//          ModelOptions model;
//          int32_t max_tokens = 64;
//          void visit_fields(Fields& f) {
//            nibble::visit_fields(model, f);
//            f.section("Sampling");
//            f.add(max_tokens, {.flag = "--max-tokens", .help = "Tokens a reply may have",
//                               .least = 1});
//          }
//        };
//        ExitCode run_chat(const ChatOptions& o, Io& io) { ... throws Error ... }
//        Command chat_command() {
//          return make_command<ChatOptions>("chat", "Talk to a model", "Longer text ...",
//          run_chat);
//        }
//   2. X(chat) in the list of commands.cpp.
//   3. tests/apps/golden/help_chat.txt: NIBBLE_UPDATE_GOLDEN=1 test_apps writes it.
// The manual page nibble-chat.1 and the completions of shells follow by themselves.
// Results go to io.out; log lines and progress to standard error (core/log.h, core/progress.h).
#pragma once
#include <functional>
#include <iosfwd>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "apps/options/options.h"
#include "core/error.h"

namespace nibble {

struct Io {
  std::istream& in;
  std::ostream& out;
  std::ostream& err;
  std::string config = {};  // the effective configuration, as --print-config shows it
  bool in_chain = false;    // a stage of a chain, which goes on by itself
};

// One run of a command: its options and what to do with them.
class CommandBody {
 public:
  virtual ~CommandBody() = default;
  Fields& fields() { return fields_; }
  virtual ExitCode run(Io& io) const = 0;

 protected:
  Fields fields_;
};

struct Command {
  std::string name;         // "convert"
  std::string summary;      // one line, for the list of commands
  std::string description;  // below the usage line of --help
  std::function<std::unique_ptr<CommandBody>()> make;
};

template <class Options>
Command make_command(std::string name, std::string summary, std::string description,
                     ExitCode (*run)(const Options&, Io&)) {
  class Body final : public CommandBody {
   public:
    explicit Body(ExitCode (*run)(const Options&, Io&)) : run_(run) {
      options_.visit_fields(fields_);
    }
    ExitCode run(Io& io) const override { return run_(options_, io); }

   private:
    Options options_;
    ExitCode (*run_)(const Options&, Io&);
  };
  return {std::move(name), std::move(summary), std::move(description),
          [run] { return std::make_unique<Body>(run); }};
}

const std::vector<Command>& commands();  // every command of this binary

// Every option of a command, those that all commands have included: for --help, manual pages and
// completions. (cli.cpp)
void with_options(const Command& command, const std::function<void(const Fields&)>& use);
// Those that may stand before the command, --version among them.
void with_options_before_command(const std::function<void(const Fields&)>& use);

}  // namespace nibble
