// SPDX-License-Identifier: MIT
// nibble runs: the record of training runs: what was done, with what, and what came of it.
#include <fmt/ranges.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <thread>

#include "apps/command.h"
#include "apps/options/runs_options.h"
#include "apps/terminal/output_buffer.h"
#include "core/file.h"
#include "core/json.h"
#include "core/text/columns.h"
#include "core/text/visible.h"
#include "runlog/chain_record.h"
#include "runlog/run_folder.h"
#include "runlog/run_plots.h"
#include "runlog/run_prune.h"
#include "runlog/run_report.h"
#include "runlog/run_tables.h"
#include "runlog/run_view.h"
#include "runtime/output_files.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

fs::path one_run(const RunsOptions& o) {
  return find_run(o.runs_dir, o.runs.empty() ? "latest" : o.runs.front());
}

std::string runs_text(size_t n) { return n == 1 ? "1 run" : fmt::format("{} runs", n); }

fs::path base_of(const fs::path& folder) {
  return fs::absolute(folder).lexically_normal().parent_path();
}

ordered_json full_json(const RunRecord& r, const fs::path& folder) {
  ordered_json j = parse_json<ordered_json>(record_json(r));
  j["state"] = r.state_name();
  j["pinned"] = r.pinned;
  j["folder"] = fs::absolute(folder).lexically_normal().string();
  return j;
}

ordered_json lineage_json(const Lineage& l) {
  return {{"origin", l.origin}, {"ancestors", l.ancestors}, {"children", l.children}};
}

std::string dumped(const ordered_json& j) {
  return j.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

size_t terminal_columns() {
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

// Draws over what it drew before.
class Screen {
 public:
  explicit Screen(std::ostream& out) : out_(out) {}
  void draw(const std::vector<std::string>& lines) {
    if (drawn_ > 0) out_ << fmt::format("\x1b[{}A", drawn_);
    const size_t columns = terminal_columns();
    // A line that wrapped would spoil the count.
    for (const std::string& line : lines) out_ << "\r" << clipped(line, columns - 1) << "\x1b[K\n";
    out_ << "\x1b[J" << std::flush;
    drawn_ = lines.size();
  }

 private:
  std::ostream& out_;
  size_t drawn_ = 0;
};

void print(const std::vector<std::string>& lines, std::ostream& out) {
  for (const std::string& line : lines) out << line << "\n";
  out << std::flush;
}

ExitCode watch(const RunsOptions& o, Io& io) {
  const fs::path folder = one_run(o);
  RunView view(folder);
  OutputBuffer* const screen_buffer = output_buffer(io.out);
  const bool terminal = screen_buffer && screen_buffer->terminal() && !o.json;
  if (terminal) screen_buffer->set_controls(Controls::raw);  // the lines of a view are visible
  Screen screen(io.out);
  const auto json_line = [&] {
    io.out << parse_json<ordered_json>(status_json(view.status())).dump() << std::endl;
  };
  view.refresh();
  for (int64_t shown = -1; view.running() && !o.once && io.out; view.refresh()) {
    if (terminal) {
      screen.draw(view.lines());
    } else if (view.status().last.step != shown) {
      shown = view.status().last.step;
      if (o.json) {
        json_line();
      } else {
        io.out << view.line() << std::endl;
      }
    }
    std::this_thread::sleep_for(std::chrono::duration<double>(o.interval.value_or(1)));
  }
  if (o.json) {
    json_line();
  } else if (terminal) {
    screen.draw(view.lines());
  } else {
    print(view.lines(), io.out);
  }
  const bool good = view.running() || view.status().state == RunState::finished;
  return good ? ExitCode::ok : ExitCode::check_failed;
}

// The runs the options name, or all that their filters leave, the oldest first.
std::vector<RunRecord> chosen_runs(const RunsOptions& o) {
  std::vector<RunRecord> list;
  if (!o.runs.empty()) {
    for (const std::string& name : o.runs) list.push_back(read_record(find_run(o.runs_dir, name)));
    return list;
  }
  for (RunRecord& r : read_records(o.runs_dir)) {
    const bool wanted = (o.state.empty() || r.state_name() == o.state) &&
                        (o.command.empty() || r.status.command == o.command) &&
                        r.name.find(o.name) != std::string::npos;
    if (wanted) list.push_back(std::move(r));
  }
  if (o.last && list.size() > size_t(*o.last)) list.erase(list.begin(), list.end() - *o.last);
  return list;
}

ExitCode list_them(const RunsOptions& o, Io& io) {
  const std::vector<RunRecord> list = chosen_runs(o);
  if (o.json) {
    ordered_json j = ordered_json::array();
    for (const RunRecord& r : list) j.push_back(full_json(r, o.runs_dir / r.name));
    io.out << dumped(j);
  } else if (list.empty()) {
    io.out << fmt::format("no such run in {}\n", o.runs_dir.string());
  } else {
    io.out << runs_table(list);
  }
  return ExitCode::ok;
}

// A chain by its name: its stages, and the runs they made.
void show_chain(const fs::path& file, const RunsOptions& o, Io& io) {
  const ChainRecord c = read_chain(file);
  if (o.json) {
    io.out << dumped(parse_json<ordered_json>(chain_json(c)));
    return;
  }
  const bool gone = c.process.state == RunState::running &&
                    process_state(file.parent_path(), c.process) == ProcessState::gone;
  io.out << fmt::format("chain       {}\nstate       {}\nfile        {}\nstarted     {}\n",
                        visible_line(c.name), gone ? "gone" : run_state_name(c.process.state),
                        visible_line(c.file), visible_line(c.process.started_utc));
  for (const StageRecord& s : c.stages) {
    const std::string text =
        fmt::format("{} ({}): {}, runs {}{}", s.name, s.command, s.state, fmt::join(s.runs, ", "),
                    s.output.empty() ? "" : ", made " + s.output);
    io.out << fmt::format("stage       {}\n", visible_line(text));
  }
}

ExitCode show(const RunsOptions& o, Io& io) {
  if (!o.runs.empty()) {
    const fs::path chain = o.runs_dir / o.runs.front() / "chain.json";
    if (fs::exists(chain)) {
      show_chain(chain, o, io);
      return ExitCode::ok;
    }
  }
  const fs::path folder = one_run(o);
  const RunRecord record = read_record(folder);
  const Lineage lineage = lineage_of(record, read_records(base_of(folder)));
  const std::vector<ReplyHistory> replies = read_replies(folder);
  if (!o.json) {
    io.out << run_text(record, lineage, replies);
    return ExitCode::ok;
  }
  ordered_json j = full_json(record, folder);
  j["lineage"] = lineage_json(lineage);
  j["replies"] = ordered_json::array();
  const auto reply = [](const Reply& r) {
    return ordered_json{{"step", r.step}, {"reply", r.text}, {"passed", r.passed}};
  };
  for (const ReplyHistory& h : replies) {
    j["replies"].push_back({{"id", h.id},
                            {"group", h.group},
                            {"prompt", h.prompt},
                            {"first", reply(h.first)},
                            {"last", reply(h.last)}});
  }
  io.out << dumped(j);
  return ExitCode::ok;
}

ExitCode show_lineage(const RunsOptions& o, Io& io) {
  const fs::path folder = one_run(o);
  const RunRecord record = read_record(folder);
  const Lineage l = lineage_of(record, read_records(base_of(folder)));
  if (o.json) {
    io.out << dumped(lineage_json(l));
    return ExitCode::ok;
  }
  std::string indent;
  const auto line = [&](const std::string& text) {
    io.out << indent << visible_line(text) << "\n";
    indent += "  ";
  };
  if (!l.origin.empty()) line(l.origin);
  for (auto it = l.ancestors.rbegin(); it != l.ancestors.rend(); ++it) line(*it);
  line(record.name + " (this run)");
  for (const std::string& child : l.children) io.out << indent << visible_line(child) << "\n";
  return ExitCode::ok;
}

Overwrite overwrite_of(const RunsOptions& o) {
  return o.force ? Overwrite::allow : Overwrite::refuse;
}

// compare.svg, compare-2.svg, ...: the first that is not there, or that is this very chart.
fs::path free_chart(const fs::path& folder, const std::string& svg) {
  for (int n = 1;; ++n) {
    const fs::path file = folder / (n == 1 ? "compare.svg" : fmt::format("compare-{}.svg", n));
    if (!fs::exists(file) || (fs::is_regular_file(file) && read_text_file(file) == svg)) {
      return file;
    }
  }
}

ExitCode compare(const RunsOptions& o, Io& io) {
  check_output_file(o.out, overwrite_of(o));
  std::vector<RunRecord> records;
  std::vector<std::pair<std::string, RunSeries>> series;
  for (const std::string& name : o.runs) {
    const fs::path folder = find_run(o.runs_dir, name);
    records.push_back(read_record(folder));
    series.emplace_back(records.back().name, read_series(folder));
  }
  const Comparison c = compare_runs(records);
  io.out << (o.json ? comparison_json(c) : comparison_text(c));
  if (o.json && o.out.empty()) return ExitCode::ok;
  const std::string svg = svg_text(compare_losses(series));
  const fs::path chart = o.out.empty() ? free_chart(o.runs_dir, svg) : o.out;
  replace_file(chart, svg);
  if (!o.json) io.out << fmt::format("\nlosses over each other: {}\n", chart.string());
  return ExitCode::ok;
}

ExitCode plot(const RunsOptions& o, Io& io) {
  const fs::path folder = one_run(o);
  const ReportContent content = read_report(folder);
  if (o.action == "plot") {
    const auto plots = run_plots(content.series, content.gates, content.record.name);
    write_plots(folder, plots);
    for (const NamedPlot& p : plots) io.out << (folder / p.file).string() << "\n";
  }
  replace_file(folder / "report.html", report_html(content));
  io.out << (folder / "report.html").string() << "\n";
  return ExitCode::ok;
}

ExitCode export_log(const RunsOptions& o, Io& io) {
  if (o.markdown == o.json) throw_usage("runs export: say --markdown or --json");
  check_output_file(o.out, overwrite_of(o));
  const std::vector<RunRecord> list = chosen_runs(o);
  std::string text;
  if (o.json) {
    ordered_json j = ordered_json::array();
    for (const RunRecord& r : list) j.push_back(full_json(r, o.runs_dir / r.name));
    text = dumped(j);
  } else {
    const std::vector<RunRecord> all = read_records(o.runs_dir);
    text = "# Runs\n\n";
    for (const RunRecord& r : list) {
      const fs::path folder = find_run(o.runs_dir, r.name);
      text += run_markdown(r, lineage_of(r, all), read_replies(folder));
    }
    text.pop_back();  // one line end is enough
  }
  if (o.out.empty()) {
    io.out << text;
    return ExitCode::ok;
  }
  replace_file(o.out, text, existing_file(overwrite_of(o)));
  io.out << fmt::format("{} written to {}\n", runs_text(list.size()), o.out.string());
  return ExitCode::ok;
}

ExitCode pin(const RunsOptions& o, Io& io) {
  for (const std::string& name : o.runs) {
    const fs::path folder = find_run(o.runs_dir, name);
    if (o.action == "pin") {
      replace_file(folder / kPinFile, "");
    } else {
      fs::remove(folder / kPinFile);
    }
    io.out << fmt::format(
        "{} is {}\n", folder.filename().string(),
        o.action == "pin" ? "pinned: prune leaves it where it is" : "not pinned any more");
  }
  return ExitCode::ok;
}

ExitCode prune(const RunsOptions& o, Io& io) {
  PruneRules rules = o.prune;
  for (const std::string& name : o.runs) {
    const fs::path folder = find_run(o.runs_dir, name);
    if (!same_file(base_of(folder), o.runs_dir)) {
      throw_usage("{} is not in {}: --runs-dir says which runs may go", folder.string(),
                  o.runs_dir.string());
    }
    rules.names.push_back(read_record(folder).name);
  }
  if (rules.names.empty() && !rules.older_than_days && !rules.keep && !rules.failed_only) {
    throw_usage("runs prune: say which: names of runs, --older-than, --keep or --failed");
  }
  const std::vector<RunRecord> all = read_records(o.runs_dir);
  const std::vector<std::string> chosen = choose_for_pruning(all, rules);
  const std::vector<std::string> chains = chains_without_runs(o.runs_dir, chosen, rules);
  const bool nothing = chosen.empty() && chains.empty();
  fs::path trash;
  if (o.yes && !nothing) {
    std::string reason;
    if (!o.runs.empty()) reason += " by name";
    if (rules.older_than_days) reason += fmt::format(" --older-than {:g}", *rules.older_than_days);
    if (rules.keep) reason += fmt::format(" --keep {}", *rules.keep);
    if (rules.failed_only) reason += " --failed";
    trash = move_to_trash(o.runs_dir, chosen, chains, reason.substr(1));
  }
  if (o.json) {
    io.out << dumped({{"runs", chosen},
                      {"chains", chains},
                      {"moved", !trash.empty()},
                      {"trash", trash.empty() ? ordered_json() : ordered_json(trash.string())}});
    return ExitCode::ok;
  }
  for (const std::string& name : chosen) io.out << name << "\n";
  for (const std::string& name : chains) io.out << name << " (a chain without runs)\n";
  std::string count = runs_text(chosen.size());
  if (!chains.empty()) {
    count += fmt::format(" and {} chain{}", chains.size(), chains.size() == 1 ? "" : "s");
  }
  if (nothing) {
    io.out << "nothing to prune\n";
  } else if (trash.empty()) {
    io.out << fmt::format("{} would be moved to {}; --yes does it\n", count,
                          (o.runs_dir / ".trash").string());
  } else {
    io.out << fmt::format("{} moved to {}\n", count, trash.string());
  }
  return ExitCode::ok;
}

ExitCode run_runs(const RunsOptions& o, Io& io) {
  o.check();
  if (o.action == "watch") return watch(o, io);
  if (o.action == "list") return list_them(o, io);
  if (o.action == "show") return show(o, io);
  if (o.action == "lineage") return show_lineage(o, io);
  if (o.action == "compare") return compare(o, io);
  if (o.action == "export") return export_log(o, io);
  if (o.action == "prune") return prune(o, io);
  if (o.action == "pin" || o.action == "unpin") return pin(o, io);
  return plot(o, io);
}

}  // namespace

Command runs_command() {
  return make_command<RunsOptions>(
      "runs", "The log of training runs: list, show, watch, compare, plot, export, prune",
      "nibble runs list                 all runs, the newest last\n"
      "nibble runs show [RUN]           one in full: files with hashes, scores, replies, settings\n"
      "nibble runs watch [RUN]          step, loss, speed and time left, until it ends; exit code "
      "1\n"
      "                                 when it failed, was interrupted or is gone\n"
      "nibble runs compare RUN RUN ...  what differs, results side by side, a chart of the losses\n"
      "nibble runs plot|report [RUN]    its charts and report.html anew\n"
      "nibble runs lineage [RUN]        which runs made its input, which read its output\n"
      "nibble runs export --markdown    the log as a document, one section a run\n"
      "nibble runs pin|unpin RUN ...    a pinned run is never pruned\n"
      "nibble runs prune ... [--yes]    moves runs to a trash folder; nothing is deleted",
      run_runs);
}

}  // namespace nibble
