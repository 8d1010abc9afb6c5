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
#include "apps/runs/runs_actions.h"
#include "apps/terminal/output_buffer.h"
#include "core/file.h"
#include "core/json.h"
#include "core/text/columns.h"
#include "core/text/visible.h"
#include "runlog/chain_record.h"
#include "runlog/diary/run_notes.h"
#include "runlog/json/run_json.h"
#include "runlog/run_folder.h"
#include "runlog/run_plots.h"
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
    for (const RunNote& n : read_notes(folder)) {
      io.out << fmt::format("{:<11} {} {}\n", n.kind == NoteKind::good_for ? "good for" : "note",
                            visible_line(n.time_utc), visible_line(n.text));
    }
    return ExitCode::ok;
  }
  ordered_json j = full_json(record, folder);
  j["lineage"] = lineage_json(lineage);
  j["replies"] = replies_json(replies);
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

ExitCode run_runs(const RunsOptions& o, Io& io) {
  o.check();
  if (o.action == "watch") return watch(o, io);
  if (o.action == "list") return list_them(o, io);
  if (o.action == "show") return show(o, io);
  if (o.action == "lineage") return show_lineage(o, io);
  if (o.action == "compare") return compare(o, io);
  if (o.action == "export") return export_runs(o, io);
  if (o.action == "note") return note_run(o, io);
  if (o.action == "inventory") return show_inventory(o, io);
  if (o.action == "try") return try_run(o, io);
  if (o.action == "prune") return prune_runs(o, io);
  if (o.action == "pin" || o.action == "unpin") return pin(o, io);
  return plot(o, io);
}

}  // namespace

Command runs_command() {
  return make_command<RunsOptions>(
      "runs", "The log of training runs: list, show, watch, try, compare, note, export, prune",
      "nibble runs list                 all runs, the newest last\n"
      "nibble runs show [RUN]           one in full: files with hashes, scores, replies, settings\n"
      "nibble runs watch [RUN]          step, loss, speed and time left, until it ends; exit code "
      "1\n"
      "                                 when it failed, was interrupted or is gone\n"
      "nibble runs compare RUN RUN ...  what differs, results side by side, a chart of the losses\n"
      "nibble runs plot|report [RUN]    its charts and report.html anew\n"
      "nibble runs lineage [RUN]        which runs made its input, which read its output\n"
      "nibble runs try [RUN] --prompt T what its newest checkpoint says, also while it trains\n"
      "nibble runs export --markdown    the log as a document, one section a run\n"
      "nibble runs export --append FILE a diary: idea, method, result of runs it does not have\n"
      "nibble runs note RUN TEXT        adds to the notes of a run, which begin with --note\n"
      "nibble runs inventory            weight files: made from what, good for what, scores\n"
      "nibble runs pin|unpin RUN ...    a pinned run is never pruned\n"
      "nibble runs prune ... [--yes]    moves runs to a trash folder, and weights that failed\n"
      "                                 ones exported elsewhere; nothing is deleted",
      run_runs);
}

}  // namespace nibble
