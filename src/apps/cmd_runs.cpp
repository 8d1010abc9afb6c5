// SPDX-License-Identifier: MIT
// nibble runs: the record of training runs. So far it shows one, running or not.
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <thread>

#include "apps/command.h"
#include "apps/run_folder.h"
#include "apps/run_view.h"

namespace nibble {
namespace {

struct RunsOptions {
  std::string action, run = "latest";
  std::filesystem::path runs_dir = RunFolderOptions().runs_dir;
  bool once = false;
  double interval = 1;

  void visit_fields(Fields& f) {
    f.add(action, {.flag = "ACTION", .help = "watch", .required = true});
    f.add(run, {.flag = "RUN", .help = "A run's folder, its name in --runs-dir, or latest"});
    f.section("Which runs");
    f.add(runs_dir, {.flag = "--runs-dir", .help = "Where the runs are", .value = "DIR"});
    f.section("watch");
    f.add(once, {.flag = "--once", .help = "Show it once and stop"});
    f.add(interval, {.flag = "--interval",
                     .help = "Time between two looks",
                     .value = "S",
                     .least = 0.05,
                     .most = 3600});
  }
};

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
  RunView view(find_run(o.runs_dir, o.run));
  const bool terminal = &io.out == &std::cout && ::isatty(STDOUT_FILENO) != 0;
  Screen screen(io.out);
  view.refresh();
  for (int64_t shown = -1; view.running() && !o.once; view.refresh()) {
    if (terminal) {
      screen.draw(view.lines());
    } else if (view.status().last.step != shown) {
      shown = view.status().last.step;
      io.out << view.line() << std::endl;
    }
    std::this_thread::sleep_for(std::chrono::duration<double>(o.interval));
  }
  if (terminal) {
    screen.draw(view.lines());
  } else {
    print(view.lines(), io.out);
  }
  const bool good = view.running() || view.status().state == RunState::finished;
  return good ? ExitCode::ok : ExitCode::check_failed;
}

ExitCode run_runs(const RunsOptions& o, Io& io) {
  if (o.action == "watch") return watch(o, io);
  const std::vector<std::string> later = {"list", "show", "compare", "plot", "export", "prune"};
  if (std::ranges::find(later, o.action) != later.end()) {
    throw_usage("runs {} is not in this version; runs watch is", o.action);
  }
  throw_usage("runs: unknown action '{}': use watch", o.action);
}

}  // namespace

Command runs_command() {
  return make_command<RunsOptions>(
      "runs", "Watch a training run",
      "nibble runs watch [RUN]: step, loss, speed, memory and time left of a run, until it ends. "
      "The exit code\nis 1 when it failed, was interrupted or is gone.",
      run_runs);
}

}  // namespace nibble
