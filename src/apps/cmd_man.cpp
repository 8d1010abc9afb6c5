// SPDX-License-Identifier: MIT
// nibble man: the manual as roff, for `man -l` and for installing.
#include <algorithm>
#include <ostream>

#include "apps/command.h"
#include "apps/manual/manual.h"
#include "core/file.h"

namespace nibble {
namespace {

struct ManOptions {
  std::string command;
  std::filesystem::path out_dir;

  void visit_fields(Fields& f) {
    std::vector<std::string> names;
    for (const Command& c : commands()) names.push_back(c.name);
    f.add(command, {.flag = "COMMAND",
                    .help = "The command whose page to print; without one, that of nibble itself",
                    .choices = names});
    f.add(out_dir, {.flag = "--out-dir",
                    .help = "Write every page into this folder, as nibble.1, nibble-train.1 and so "
                            "on; pages that are there are replaced",
                    .value = "DIR"});
  }
};

ExitCode run_man(const ManOptions& o, Io& io) {
  if (!o.out_dir.empty()) {
    if (!o.command.empty()) throw_usage("--out-dir writes every page: leave out {}", o.command);
    std::filesystem::create_directories(o.out_dir);
    replace_file(o.out_dir / "nibble.1", manual_page());
    for (const Command& c : commands()) {
      replace_file(o.out_dir / ("nibble-" + c.name + ".1"), manual_page(c));
    }
    return ExitCode::ok;
  }
  if (o.command.empty()) {
    io.out << manual_page();
    return ExitCode::ok;
  }
  const auto& all = commands();
  const auto found = std::ranges::find(all, o.command, &Command::name);
  if (found == all.end()) throw_usage("no command '{}'; nibble --help lists them", o.command);
  io.out << manual_page(*found);
  return ExitCode::ok;
}

}  // namespace

Command man_command() {
  return make_command<ManOptions>("man", "Print the manual page of a command",
                                  "In roff. An installed nibble has its pages in place (man "
                                  "nibble-train); without installing:\n"
                                  "nibble man train | man -l -",
                                  run_man);
}

}  // namespace nibble
