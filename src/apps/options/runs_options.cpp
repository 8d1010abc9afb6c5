// SPDX-License-Identifier: MIT
#include "apps/options/runs_options.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <tuple>

#include "core/error.h"
#include "core/text/nearest_name.h"

namespace nibble {
namespace {

const std::vector<std::string> kActions = {"list",   "show",   "watch", "try",       "compare",
                                           "plot",   "report", "note",  "inventory", "lineage",
                                           "export", "pin",    "unpin", "prune"};

}  // namespace

void RunsOptions::visit_fields(Fields& f) {
  f.add(action, {.flag = "ACTION",
                 .help = "list, show, watch, try, compare, plot, report, note, inventory, lineage, "
                         "export, pin, unpin or prune",
                 .choices = kActions,
                 .required = true});
  f.add(runs, {.flag = "RUN", .help = "A run's folder, its name in --runs-dir, or latest"});
  f.section("Which runs");
  f.add(runs_dir, {.flag = "--runs-dir", .help = "Where the runs are", .value = "DIR"});
  f.add(state, {.flag = "--state",
                .help = "list, export: only those running, finished, failed, collapsed, "
                        "interrupted or gone",
                .value = "STATE"});
  f.add(command,
        {.flag = "--of", .help = "list, export: only those of this command", .value = "COMMAND"});
  f.add(name, {.flag = "--name",
               .help = "list, export: only those with this text in their name",
               .value = "TEXT"});
  f.add(last, {.flag = "--last", .help = "list, export: only the newest N", .least = 1});
  f.section("Output");
  f.add(json, {.flag = "--json", .help = "JSON instead of text"});
  f.add(markdown, {.flag = "--markdown", .help = "export: a log in Markdown"});
  f.add(out, {.flag = "--out",
              .help = "export, inventory: write to this file; compare: where the chart goes "
                      "(default: compare.svg in --runs-dir, or compare-2.svg and so on)",
              .value = "FILE"});
  f.add(append,
        {.flag = "--append",
         .help = "export: a diary in Markdown to which runs are added that it does not have "
                 "yet, by idea, method and result; prune: likewise, with what was moved",
         .value = "FILE"});
  f.add(force, {.flag = "--force",
                .help = "export, inventory, compare: replace an --out that exists",
                .needs = "--out"});
  f.section("watch");
  f.add(once, {.flag = "--once", .help = "Show it once and stop"});
  f.add(interval, {.flag = "--interval",
                   .help = "Time between two looks; default 1",
                   .value = "S",
                   .least = 0.05,
                   .most = 3600});
  f.section("note");
  f.add(good_for, {.flag = "--good-for",
                   .help = "The note says what the run's weights are good for, for the inventory"});
  f.section("try");
  f.add(prompt, {.flag = "--prompt",
                 .help = "What to ask the newest sound checkpoint, or the export, of a run",
                 .value = "TEXT"});
  f.add(max_tokens,
        {.flag = "--max-tokens", .help = "Tokens the reply may have", .least = 1, .most = 1 << 30});
  f.add(device, {.flag = "--device",
                 .help = "Where to run; default: the CPU while the run goes on, else auto",
                 .value = "auto|cpu|cuda|cuda:N"});
  f.section("prune");
  f.add(prune.older_than_days, {.flag = "--older-than",
                                .help = "Only runs started more than this many days ago",
                                .value = "DAYS",
                                .least = 0});
  f.add(prune.keep,
        {.flag = "--keep", .help = "The newest N of those that would go stay", .least = 0});
  f.add(prune.failed_only,
        {.flag = "--failed",
         .help = "Only runs that failed, collapsed, were interrupted or are gone"});
  f.add(yes, {.flag = "--yes", .help = "Do it; without it prune only says what it would move"});
}

void RunsOptions::check() const {
  if (std::ranges::find(kActions, action) == kActions.end()) {
    const std::string near = nearest_name(action, kActions);
    throw_usage("runs: unknown action '{}'{}: use {}", action,
                near.empty() ? "" : fmt::format(" (did you mean {}?)", near),
                fmt::join(kActions, ", "));
  }
  using Actions = std::vector<std::string>;
  const Actions lists = {"list", "export"};
  const std::vector<std::tuple<const char*, bool, Actions>> rules = {
      {"--state", !state.empty(), lists},
      {"--of", !command.empty(), lists},
      {"--name", !name.empty(), lists},
      {"--last", last.has_value(), lists},
      {"--json",
       json,
       {"list", "show", "watch", "compare", "inventory", "lineage", "export", "prune"}},
      {"--markdown", markdown, {"export", "inventory"}},
      {"--out", !out.empty(), {"export", "inventory", "compare"}},
      {"--append", !append.empty(), {"export", "prune"}},
      {"--good-for", good_for, {"note"}},
      {"--prompt", !prompt.empty(), {"try"}},
      {"--max-tokens", max_tokens != 64, {"try"}},
      {"--device", device.has_value(), {"try"}},
      {"--force", force, {"export", "inventory", "compare"}},
      {"--once", once, {"watch"}},
      {"--interval", interval.has_value(), {"watch"}},
      {"--older-than", prune.older_than_days.has_value(), {"prune"}},
      {"--keep", prune.keep.has_value(), {"prune"}},
      {"--failed", prune.failed_only, {"prune"}},
      {"--yes", yes, {"prune"}}};
  for (const auto& [flag, given, actions] : rules) {
    if (given && std::ranges::find(actions, action) == actions.end()) {
      throw_usage("{} says nothing to runs {}: it belongs to {}", flag, action,
                  fmt::join(actions, ", "));
    }
  }
  const std::vector<std::string> states = {"running",   "finished",    "failed",
                                           "collapsed", "interrupted", "gone"};
  if (!state.empty() && std::ranges::find(states, state) == states.end()) {
    throw_usage("--state: '{}' is not one of the choices: use {}", state, fmt::join(states, ", "));
  }
  const bool takes_none = action == "list" || action == "inventory";
  const bool takes_one = action == "watch" || action == "try" || action == "show" ||
                         action == "lineage" || action == "plot" || action == "report";
  if (takes_none && !runs.empty()) {
    throw_usage("runs {} is of all runs; runs show {} shows one", action, runs.front());
  }
  if (takes_one && runs.size() > 1) throw_usage("runs {} takes one run", action);
  if (action == "try" && prompt.empty()) throw_usage("runs try needs --prompt: what to ask");
  if (action == "note" && runs.size() != 2) {
    throw_usage("runs note takes a run and a text: nibble runs note latest \"what came of it\"");
  }
  if (action == "compare" && runs.size() < 2) throw_usage("runs compare takes two runs or more");
  if ((action == "pin" || action == "unpin") && runs.empty()) {
    throw_usage("runs {} takes the names of runs", action);
  }
}

}  // namespace nibble
