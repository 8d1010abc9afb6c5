// SPDX-License-Identifier: MIT
#include "apps/cli.h"

#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <new>
#include <system_error>

#include "apps/command.h"
#include "apps/options/legacy_flags.h"
#include "apps/options/legacy_programs.h"
#include "apps/options/other_names.h"
#include "apps/options/user_defaults.h"
#include "apps/run_chain.h"
#include "apps/version.h"
#include "core/live_line.h"
#include "core/log.h"
#include "core/text/nearest_name.h"
#include "core/text/visible.h"
#include "runlog/run_recorder.h"

namespace nibble {
namespace {

// Options every command has.
struct CommonOptions {
  bool help = false, quiet = false, verbose = false, print_config = false;
  std::filesystem::path run_config;

  void visit_before_command(Fields& f) {
    f.section("Common options");
    f.add(quiet, {.flag = "--quiet", .help = "Warnings and errors only, no progress"});
    f.add(verbose, {.flag = "--verbose", .help = "More log lines"});
    f.add(help, {.flag = "--help", .help = "Show this text and stop", .aliases = {"-h"}});
  }
  void visit_fields(Fields& f) {
    f.section("Common options");
    f.add(run_config, {.flag = "--run-config",
                       .help = "Options from a TOML file with the same keys; the command line wins",
                       .value = "FILE"});
    f.add(print_config,
          {.flag = "--print-config", .help = "Print the effective options as TOML and stop"});
    visit_before_command(f);
  }
  void apply_log_level() const {
    if (quiet && verbose) throw_usage("--quiet and --verbose exclude each other");
    set_log_level(quiet ? LogLevel::quiet : verbose ? LogLevel::debug : LogLevel::info);
  }
};

std::string general_help() {
  std::string s =
      "nibble: trains language models with NVFP4 weights, every parameter of them, and runs "
      "them\n\n"
      "Usage: nibble [--quiet|--verbose] COMMAND [options]\n"
      "       nibble COMMAND --help\n"
      "       nibble --version\n\nCommands:\n";
  for (const Command& c : commands()) s += fmt::format("  {:<11} {}\n", c.name, c.summary);
  s += "\nTo begin with:\n"
       "  nibble chat mini\n"
       "  nibble train mini --train-data pairs.tsv --steps 60 --lr 3e-4 --output mine\n"
       "  nibble chat mine\n"
       "  nibble runs list\n";
  return s;
}

const Command* find_command(const std::string& name) {
  for (const Command& c : commands()) {
    if (c.name == name) return &c;
  }
  return nullptr;
}

[[noreturn]] void unknown_command(const std::string& name) {
  std::vector<std::string> names;
  for (const Command& c : commands()) names.push_back(c.name);
  const std::string near = nearest_name(name, names);
  throw_usage("unknown command '{}'{}; nibble --help lists them", name,
              near.empty() ? "" : fmt::format(" (did you mean '{}'?)", near));
}

// Which other commands know a flag: a flag in the wrong place is the commonest mistake.
std::string commands_with(const std::string& flag, const std::string& except) {
  std::string names;
  for (const Command& c : commands()) {
    if (c.name == except || !c.make()->fields().find(flag)) continue;
    names += (names.empty() ? "" : ", ") + c.name;
  }
  return names;
}

// A flag of another program: ours, and where it belongs.
std::string explain_other_name(const std::string& flag, const OtherName& other,
                               const std::string& command, Fields& fields) {
  const std::string more = other.explain.empty() ? "" : fmt::format(" ({})", other.explain);
  if (other.ours.empty()) return fmt::format("{}: not in nibble: {}", flag, other.explain);
  const std::string ours(other.ours);
  if (fields.find(ours)) return fmt::format("unknown option {}: here it is {}{}", flag, ours, more);
  const std::string elsewhere = commands_with(ours, command);
  return fmt::format(
      "unknown option {}: in nibble it is {}{}, which '{}' does not have; it belongs "
      "to {}",
      flag, ours, more, command, elsewhere);
}

std::string explain_unknown(const std::string& flag, const std::string& command, Fields& fields) {
  const std::string elsewhere = commands_with(flag, command);
  if (const LegacyFlag* legacy = find_legacy_flag(flag)) {
    if (elsewhere.empty()) return fmt::format("{}: not in nibble; {}", flag, legacy->instead);
    return fmt::format("{}: not an option of '{}' (it belongs to {}); {}", flag, command, elsewhere,
                       legacy->instead);
  }
  if (!elsewhere.empty()) {
    return fmt::format("{}: not an option of '{}'; it belongs to {}", flag, command, elsewhere);
  }
  if (const OtherName* other = find_other_name(flag)) {
    return explain_other_name(flag, *other, command, fields);
  }
  std::string dashed = flag;
  std::ranges::replace(dashed, '_', '-');
  if (dashed != flag && fields.find(dashed)) {
    return fmt::format("unknown option {}: it is written {}", flag, dashed);
  }
  std::vector<std::string> names;
  for (const Field& f : fields.all()) {
    if (f.positional()) continue;
    names.push_back(f.info.flag);
    names.insert(names.end(), f.info.aliases.begin(), f.info.aliases.end());
  }
  const std::string near = nearest_name(flag, names);
  return fmt::format("unknown option {}{}; see nibble {} --help", flag,
                     near.empty() ? "" : fmt::format(" (did you mean {}?)", near), command);
}

std::string help_of(const Command& command) {
  std::string s;
  with_options(command, [&](const Fields& fields) {
    s = fmt::format("nibble {}: {}\n\nUsage: nibble {}{}\n", command.name, command.summary,
                    command.name, usage_arguments(fields));
    if (!command.description.empty()) s += "\n" + help_paragraphs(command.description);
    s += help_text(fields);
  });
  return s;
}

// The first `own` of `fields` are the command's, the others every command has.
ExitCode run_stages(const Command& command, const RunConfig& config, Fields& fields, size_t own,
                    std::span<const std::string> args, bool print_config, Io& io) {
  std::vector<std::string> flags;
  for (size_t i = own; i < fields.all().size(); ++i) {
    const FieldInfo& info = fields.all()[i].info;
    flags.push_back(info.flag);
    flags.insert(flags.end(), info.aliases.begin(), info.aliases.end());
  }
  const std::vector<std::string> rest = arguments_without(fields, args, [&](const Field& f) {
    return std::ranges::find(flags, f.info.flag) != flags.end();
  });
  return run_chain({config, command.name, rest, explain_unknown, print_config}, io);
}

// `program`: the predecessor's, when the line names it instead of a command.
ExitCode run_command(const Command& command, std::span<const std::string> typed,
                     const LegacyProgram* program, Io& io) {
  const std::vector<std::string> words = with_values_of_today(
      program ? words_of(*program, typed) : std::vector(typed.begin(), typed.end()), command.name);
  const std::span<const std::string> args(words);
  const auto body = command.make();
  Fields& fields = body->fields();
  const size_t own = fields.all().size();
  CommonOptions common;
  common.visit_fields(fields);
  const auto explain = [&](const std::string& flag) {
    return explain_unknown(flag, command.name, fields);
  };
  // --help wins over mistakes elsewhere on the line: whoever asks for help may have made some.
  for (const std::string& a : args.first(count_before_rest(fields, args))) {
    if (a == "--help" || a == "-h") {
      io.out << help_of(command);
      return ExitCode::ok;
    }
  }
  parse_arguments(fields, args, explain,
                  [&](const std::string& flag) { return find_unneeded(flag, command.name); });
  common.apply_log_level();
  if (!common.run_config.empty()) {
    const RunConfig config = read_run_config(common.run_config);
    const bool chains = command.name == "train" || command.name == "pretrain";
    if (!config.stages.empty() && chains) {
      return run_stages(command, config, fields, own, args, common.print_config, io);
    }
    apply_run_config(fields, config, command.name, explain);
    common.apply_log_level();
  }
  if (program) apply_defaults(*program, fields, explain);
  apply_user_defaults(
      fields, command.name,
      [](const std::string& key) {
        return std::ranges::any_of(commands(), [&](const Command& c) {
          return c.make()->fields().find("--" + key) != nullptr;
        });
      },
      explain);
  common.apply_log_level();
  Fields configuration = fields;
  configuration.all().resize(own);
  io.config = fmt::format("command = \"{}\"\n{}", command.name, configuration.to_toml());
  if (common.print_config) {
    io.out << io.config;
    return ExitCode::ok;
  }
  check_required(fields, command.name);
  return body->run(io);
}

ExitCode dispatch(const std::vector<std::string>& args, Io& io) {
  size_t begin = 0;
  while (begin < args.size() && args[begin].starts_with("-") && args[begin] != "--version") ++begin;
  CommonOptions common;
  Fields fields;
  common.visit_before_command(fields);
  parse_arguments(fields, std::span(args).first(begin), [&](const std::string& flag) {
    return fmt::format("unknown option {} before the command; see nibble --help", flag);
  });
  if (!common.help && begin + 1 < args.size() && args[begin] == "help") {
    if (begin + 2 < args.size()) throw_usage("help takes one command, found '{}'", args[begin + 2]);
    io.out << command_help(args[begin + 1]);
    return ExitCode::ok;
  }
  if (common.help || begin == args.size() || args[begin] == "help") {
    io.out << general_help();
    return common.help || begin < args.size() ? ExitCode::ok : ExitCode::usage;
  }
  if (args[begin] == "--version") {
    io.out << version_text();
    return ExitCode::ok;
  }
  common.apply_log_level();
  const Command* command = find_command(args[begin]);
  const LegacyProgram* program = command ? nullptr : find_legacy_program(args[begin]);
  if (program) {
    command = find_command(std::string(program->command));
    log_warning("{} is nibble {}{} now", program->name, program->command,
                program->words.empty() ? "" : fmt::format(" {}", program->words));
  }
  if (!command) unknown_command(args[begin]);
  std::vector<std::string> rest(args.begin(), args.begin() + std::ptrdiff_t(begin));
  rest.insert(rest.end(), args.begin() + std::ptrdiff_t(begin) + 1, args.end());
  return run_command(*command, rest, program, io);
}

int fail(std::ostream& err, ExitCode code, const std::string& message) {
  erase_live_line();
  explain_failed_run(code, message);
  if (message.empty()) return int(code);  // another rank says it
  err << "nibble: error: " << visible_text(message) << std::endl;
  return int(code);
}

}  // namespace

void with_options(const Command& command, const std::function<void(const Fields&)>& use) {
  const auto body = command.make();
  CommonOptions common;
  common.visit_fields(body->fields());
  use(body->fields());
}

void with_options_before_command(const std::function<void(const Fields&)>& use) {
  Fields fields;
  CommonOptions common;
  bool version = false;
  common.visit_before_command(fields);
  fields.add(version, {.flag = "--version", .help = "Show what this binary is and stop"});
  use(fields);
}

std::string command_help(const std::string& name) {
  const Command* command = find_command(name);
  if (!command) unknown_command(name);
  return help_of(*command);
}

int run_cli(const std::vector<std::string>& args, std::istream& in, std::ostream& out,
            std::ostream& err) {
  forget_failed_run();
  try {
    Io io{in, out, err};
    return int(dispatch(args, io));
  } catch (const Error& e) {
    return fail(err, e.code(), e.what());
  } catch (const std::bad_alloc&) {
    return fail(err, ExitCode::device, "out of memory");
  } catch (const std::filesystem::filesystem_error& e) {
    return fail(err, ExitCode::file, e.what());
  } catch (const std::system_error& e) {
    // What starts a thread says this; no other call of ours throws it.
    const bool threads = e.code() == std::errc::resource_unavailable_try_again;
    return fail(err, threads ? ExitCode::device : ExitCode::file,
                threads ? fmt::format("a thread could not be started ({}): the limit of processes "
                                      "is reached; raise it (ulimit -u) or use --threads 1",
                                      e.what())
                        : fmt::format("reading or writing failed: {}", e.what()));
  } catch (const std::exception& e) {
    return fail(err, ExitCode::internal,
                fmt::format("unexpected: {} (please report this)", e.what()));
  } catch (...) {
    return fail(err, ExitCode::internal, "unknown exception (please report this)");
  }
}

int run_cli(const std::vector<std::string>& args, std::ostream& out, std::ostream& err) {
  return run_cli(args, std::cin, out, err);
}

}  // namespace nibble
