// SPDX-License-Identifier: MIT
#include "runlog/run_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/memory_info.h"
#include "core/text/columns.h"
#include "core/text/visible.h"
#include "core/utc_time.h"
#include "runlog/diary/markdown.h"

namespace nibble {
namespace {

std::string number_or_dash(double v, const char* format) {
  return std::isfinite(v) ? fmt::format(fmt::runtime(format), v) : "-";
}

enum class Align { left, right };

std::string padded(const std::string& s, size_t width, Align align) {
  const std::string fill(width - std::min(width, columns_of(s)), ' ');
  return align == Align::left ? s + fill : fill + s;
}

std::string table(std::vector<std::vector<std::string>> rows, const std::vector<Align>& align) {
  std::vector<size_t> widths(align.size(), 0);
  for (auto& row : rows) {
    for (std::string& cell : row) cell = visible_line(cell);  // records are files like any other
  }
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], columns_of(row[i]));
  }
  std::string out;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      line += (i == 0 ? "" : "  ") + padded(row[i], widths[i], align[i]);
    }
    out += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return out;
}

std::string minute(const std::string& utc) {
  return utc.size() >= 16 ? utc.substr(0, 10) + " " + utc.substr(11, 5) : utc;
}

std::string steps_text(const RunRecord& r) {
  return r.status.steps > 0 ? fmt::format("{}/{}", r.status.last.step, r.status.steps)
                            : fmt::format("{}", r.status.last.step);
}

std::string percent(const GateScore& g) {
  return fmt::format("{:.4g} %", 100.0 * double(g.passed) / double(std::max<int64_t>(1, g.total)));
}

// "identity 98 %, retention 95 %"
std::string gates_text(const RunRecord& r) {
  std::string out;
  if (r.gates.empty()) return "-";
  for (const GateScore& g : r.gates.back().groups) {
    out += (out.empty() ? "" : ", ") + g.group + " " + percent(g);
  }
  return out;
}

std::string held_out_text(const RunRecord& r) {
  const RunStatus& s = r.status;
  if (s.held_out_step == 0) return "-";
  return fmt::format("{} at step {}, best {} at step {}", number_or_dash(s.held_out_loss, "{:.4f}"),
                     s.held_out_step, number_or_dash(r.totals.best_held_out.loss, "{:.4f}"),
                     r.totals.best_held_out.step);
}

// "8.1234 -> 0.0007, lowest 0.0005 at step 310; smoothed over about 20 steps 0.0031"
std::string loss_text(const RunRecord& r) {
  std::string out = fmt::format("{} -> {}", number_or_dash(r.totals.first_loss, "{:.4f}"),
                                number_or_dash(r.status.last.loss, "{:.4f}"));
  if (r.totals.lowest.step > 0) {
    out += fmt::format(", lowest {:.4f} at step {}", r.totals.lowest.loss, r.totals.lowest.step);
  }
  return out + fmt::format("; smoothed over about 20 steps {}",
                           number_or_dash(r.status.last.smoothed_loss, "{:.4f}"));
}

std::string gradient_text(const RunRecord& r) {
  std::string out = "norm " + number_or_dash(r.status.last.grad_norm, "{:.3g}");
  const StepLoss& largest = r.totals.largest_grad;
  if (largest.step > 0)
    out += fmt::format(", largest {:.3g} at step {}", largest.loss, largest.step);
  return out;
}

std::string self_test_text(const SelfTestRecord& t) {
  std::string out = t.passed ? "passed" : "failed: " + t.problem;
  if (std::isfinite(t.loss_from_file)) {
    out += fmt::format("; loss of the first sample {:.4f} from the file", t.loss_from_file);
  }
  if (std::isfinite(t.loss_in_training))
    out += fmt::format(", {:.4f} in training", t.loss_in_training);
  return out;
}

std::string memory_text(const RunRecord& r) {
  std::string out = format_bytes(r.memory.peak_rss_bytes);
  if (r.memory.peak_gpu_mib > 0) {
    out += ", GPU " + format_bytes(uint64_t(r.memory.peak_gpu_mib) << 20);
  }
  return out;
}

double speed_of(const RunRecord& r) {
  return r.totals.seconds > 0 ? double(r.totals.tokens) / r.totals.seconds : kNoValue;
}

std::string state_text(const RunRecord& r) {
  std::string out = r.state_name();
  if (!r.status.message.empty()) out += ": " + r.status.message;
  if (r.exit_code && *r.exit_code != 0) out += fmt::format(" (exit code {})", *r.exit_code);
  return out + (r.pinned ? ", pinned" : "");
}

std::string lineage_text(const RunRecord& r, const Lineage& l) {
  std::string out = l.origin.empty() ? "" : l.origin + " -> ";
  for (auto it = l.ancestors.rbegin(); it != l.ancestors.rend(); ++it) out += *it + " -> ";
  out += r.name;
  for (size_t i = 0; i < l.children.size(); ++i) out += (i == 0 ? " -> " : ", ") + l.children[i];
  return out;
}

// A reply on a terminal: no line ends and nothing a terminal obeys.
std::string one_line(std::string text, size_t most) {
  std::ranges::replace_if(
      text, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }, ' ');
  size_t n = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xc0) != 0x80 && ++n > most) {
      return text.substr(0, i) + "...";
    }
  }
  return text;
}

}  // namespace

std::string runs_table(const std::vector<RunRecord>& runs) {
  std::vector<std::vector<std::string>> rows = {
      {"run", "state", "command", "started (UTC)", "time", "steps", "loss", "held out", "gates"}};
  for (const RunRecord& r : runs) {
    rows.push_back({(r.pinned ? "*" : "") + r.name, r.state_name(), r.status.command,
                    minute(r.status.started_utc), duration_text(r.seconds()), steps_text(r),
                    number_or_dash(r.status.last.loss, "{:.4f}"),
                    number_or_dash(r.status.held_out_loss, "{:.4f}"), gates_text(r)});
  }
  using enum Align;
  return table(rows, {left, left, left, left, right, right, right, right, left});
}

std::string run_text(const RunRecord& r, const Lineage& lineage,
                     const std::vector<ReplyHistory>& replies) {
  std::string out;
  const auto row = [&](const char* name, const std::string& value) {
    out += fmt::format("{:<11} {}\n", name, visible_line(value));
  };
  row("run", r.name);
  row("state", state_text(r));
  row("command", r.command_line);
  if (!r.directory.empty()) row("in", r.directory);
  row("version", r.made_by());
  if (r.chain) {
    row("chain", fmt::format("{}, stage {} of {} ({})", r.chain->chain, r.chain->stage,
                             r.chain->stages, r.chain->stage_name));
  }
  row("started", r.status.started_utc);
  row("time", duration_text(r.seconds()));
  row("steps",
      steps_text(r) + (r.totals.skipped > 0 ? fmt::format(", {} skipped", r.totals.skipped) : ""));
  row("loss", loss_text(r));
  row("gradient", gradient_text(r));
  if (r.totals.kept_tokens > 0) {
    row("kept", fmt::format("KL {} at the end, {} at most, over {} tokens; taught rows {}",
                            number_or_dash(r.totals.kept_loss, "{:.5f}"),
                            number_or_dash(r.totals.largest_kept, "{:.5f}"), r.totals.kept_tokens,
                            number_or_dash(r.totals.taught_loss, "{:.4f}")));
  }
  row("held out", held_out_text(r));
  if (!r.continues.empty()) {
    row("continues", fmt::format("{}, after step {}", r.continues, r.continued_at));
  }
  row("speed", fmt::format("{} tokens/s, {} tokens", number_or_dash(speed_of(r), "{:.1f}"),
                           r.totals.tokens));
  row("memory", memory_text(r));
  for (const GateScores& g : r.gates) {
    for (const GateScore& s : g.groups) {
      row("gate", fmt::format("step {:>6}  {:<16} {}/{} ({}){}", g.step, s.group, s.passed, s.total,
                              percent(s), s.languages.empty() ? "" : "  " + s.languages));
    }
  }
  for (const std::string& c : r.collapses) row("collapse", one_line(c, 400));
  for (const std::string& w : r.warnings) row("warning", one_line(w, 400));
  if (r.self_test) {
    row("self-test", self_test_text(*r.self_test));
    if (!r.self_test->prompt.empty()) {
      row("", fmt::format("{} -> {}", one_line(r.self_test->prompt, 60),
                          one_line(r.self_test->reply, 200)));
    }
  }
  row("lineage", lineage_text(r, lineage));
  for (const RunFile& f : r.files) {
    row("file", fmt::format("{:<10} {}  {}  {}", f.role,
                            f.sha256.empty() ? std::string("not hashed") : f.sha256, f.path,
                            format_bytes(f.bytes)));
  }
  if (!r.status.output.empty()) row("output", r.status.output);
  constexpr size_t kShown = 12;
  for (size_t i = 0; i < std::min(kShown, replies.size()); ++i) {
    const ReplyHistory& h = replies[i];
    row("reply", fmt::format("{} [{}] {} -> {}", h.last.passed ? "ok  " : "FAIL", h.group,
                             one_line(h.prompt, 40), one_line(h.last.text, 60)));
  }
  if (replies.size() > kShown) {
    row("", fmt::format("{} more replies in replies.jsonl", replies.size() - kShown));
  }
  for (const auto& [key, value] : r.config) row("setting", key + " = " + value);
  return out;
}

bool ComparedRow::differs() const {
  return std::ranges::any_of(values, [&](const std::string& v) { return v != values.front(); });
}

Comparison compare_runs(const std::vector<RunRecord>& runs) {
  Comparison c;
  for (const RunRecord& r : runs) c.runs.push_back(r.name);
  const auto result = [&](const char* name, const auto& value) {
    ComparedRow row{name, {}};
    for (const RunRecord& r : runs) row.values.push_back(value(r));
    c.results.push_back(std::move(row));
  };
  result("state", [](const RunRecord& r) { return r.state_name(); });
  result("steps", steps_text);
  result("first loss",
         [](const RunRecord& r) { return number_or_dash(r.totals.first_loss, "{:.4f}"); });
  result("last loss",
         [](const RunRecord& r) { return number_or_dash(r.status.last.loss, "{:.4f}"); });
  result("lowest loss",
         [](const RunRecord& r) { return number_or_dash(r.totals.lowest.loss, "{:.4f}"); });
  result("smoothed loss",
         [](const RunRecord& r) { return number_or_dash(r.status.last.smoothed_loss, "{:.4f}"); });
  result("largest gradient",
         [](const RunRecord& r) { return number_or_dash(r.totals.largest_grad.loss, "{:.3g}"); });
  result("held-out loss",
         [](const RunRecord& r) { return number_or_dash(r.status.held_out_loss, "{:.4f}"); });
  result("best held out",
         [](const RunRecord& r) { return number_or_dash(r.totals.best_held_out.loss, "{:.4f}"); });
  result("time", [](const RunRecord& r) { return duration_text(r.seconds()); });
  result("tokens/s", [](const RunRecord& r) { return number_or_dash(speed_of(r), "{:.1f}"); });
  result("peak memory", memory_text);
  result("device", [](const RunRecord& r) { return r.device.empty() ? "-" : r.device; });

  std::vector<std::string> groups, keys, roles;
  const auto note = [](std::vector<std::string>& list, const std::string& name) {
    if (std::ranges::find(list, name) == list.end()) list.push_back(name);
  };
  for (const RunRecord& r : runs) {
    if (!r.gates.empty()) {
      for (const GateScore& g : r.gates.back().groups) note(groups, g.group);
    }
    for (const auto& [key, value] : r.config) note(keys, key);
    for (const RunFile& f : r.files) {
      if (f.role != "output") note(roles, f.role);
    }
  }
  for (const std::string& group : groups) {
    result(("gate " + group).c_str(), [&](const RunRecord& r) -> std::string {
      if (r.gates.empty()) return "-";
      const auto& list = r.gates.back().groups;
      const auto it = std::ranges::find(list, group, &GateScore::group);
      return it == list.end() ? "-" : percent(*it);
    });
  }
  for (const std::string& key : keys) {
    ComparedRow row{key, {}};
    for (const RunRecord& r : runs) {
      const auto it = std::ranges::find(r.config, key, [](const auto& p) { return p.first; });
      row.values.push_back(it == r.config.end() ? "-" : it->second);
    }
    if (row.differs()) c.settings.push_back(std::move(row));
  }
  for (const std::string& role : roles) {
    ComparedRow row{role, {}};
    for (const RunRecord& r : runs) {
      std::string hashes;
      for (const RunFile* f : r.with_role(role)) {
        hashes += (hashes.empty() ? "" : " ") +
                  (f->sha256.empty() ? std::string("?") : f->sha256.substr(0, 12));
      }
      row.values.push_back(hashes.empty() ? "-" : hashes);
    }
    if (row.differs()) c.files.push_back(std::move(row));
  }
  return c;
}

std::string comparison_text(const Comparison& c) {
  std::vector<Align> align(c.runs.size() + 1, Align::left);
  const auto section = [&](const std::string& name, const std::vector<ComparedRow>& rows,
                           const std::string& none) {
    if (rows.empty()) return name + ": " + none + "\n";
    std::vector<std::vector<std::string>> lines(1, {name});
    lines[0].insert(lines[0].end(), c.runs.begin(), c.runs.end());
    for (const ComparedRow& r : rows) {
      std::vector<std::string> line = {"  " + r.name};
      line.insert(line.end(), r.values.begin(), r.values.end());
      lines.push_back(std::move(line));
    }
    return table(lines, align);
  };
  return section("results", c.results, "none") + "\n" +
         section("settings", c.settings, "the same") + "\n" +
         section("input files", c.files, "the same");
}

std::string comparison_json(const Comparison& c) {
  const auto rows = [&](const std::vector<ComparedRow>& list) {
    nlohmann::ordered_json j = nlohmann::ordered_json::object();
    for (const ComparedRow& r : list) {
      for (size_t i = 0; i < c.runs.size(); ++i) j[r.name][c.runs[i]] = r.values[i];
    }
    return j;
  };
  const nlohmann::ordered_json j = {{"runs", c.runs},
                                    {"results", rows(c.results)},
                                    {"settings_that_differ", rows(c.settings)},
                                    {"input_files_that_differ", rows(c.files)}};
  return j.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

namespace {

std::string markdown(const std::string& text) { return markdown_text(text); }
std::string code(const std::string& text) { return markdown_code(text); }

}  // namespace

std::string run_markdown(const RunRecord& r, const Lineage& lineage,
                         const std::vector<ReplyHistory>& replies, size_t most_replies) {
  std::string out =
      fmt::format("## {} {}\n\n", markdown(minute(r.status.started_utc)), markdown(r.name));
  const auto row = [&](const std::string& name, const std::string& value) {
    out += fmt::format("- **{}**: {}\n", markdown(name), value);
  };
  row("State", markdown(state_text(r)));
  row("Command", code(r.command_line));
  row("Version", markdown(r.made_by()));
  if (r.chain) {
    row("Chain", markdown(fmt::format("{}, stage {} of {} ({})", r.chain->chain, r.chain->stage,
                                      r.chain->stages, r.chain->stage_name)));
  }
  std::string settings;
  for (const char* key : {"lr", "seq-len", "batch-size", "accumulate", "seed", "recipe",
                          "optimizer-state-mode", "sample-mode", "train-last-layers"}) {
    if (const std::string v = r.setting(key); !v.empty()) {
      settings += fmt::format("{}{} {}", settings.empty() ? "" : ", ", key, v);
    }
  }
  if (!settings.empty()) row("Settings", markdown(settings));
  row("Steps", markdown(fmt::format("{} in {}", steps_text(r), duration_text(r.seconds()))));
  if (!r.continues.empty()) {
    row("Continues", markdown(fmt::format("{}, after step {}", r.continues, r.continued_at)));
  }
  row("Loss", markdown(loss_text(r) + "; held out " + held_out_text(r)));
  row("Gradient", markdown(gradient_text(r)));
  row("Peak memory", memory_text(r));
  for (const std::string& c : r.collapses) row("Collapse", markdown(c));
  for (const std::string& w : r.warnings) row("Warning", markdown(w));
  if (r.self_test) {
    row("Self-test", markdown(self_test_text(*r.self_test)));
    if (!r.self_test->prompt.empty()) {
      row("Self-test's reply",
          markdown(fmt::format("{} -> {}", r.self_test->prompt, r.self_test->reply)));
    }
  }
  row("Lineage", markdown(lineage_text(r, lineage)));
  for (const RunFile& f : r.files) {
    row(f.role, code(f.path) + (f.sha256.empty() ? "" : " sha256 " + code(f.sha256)));
  }
  if (r.gates.size() > 0) {
    const GateScores &first = r.gates.front(), &last = r.gates.back();
    out += fmt::format("\n| gate | step {} | step {} |\n|---|---|---|\n", first.step, last.step);
    for (const GateScore& g : last.groups) {
      const auto it = std::ranges::find(first.groups, g.group, &GateScore::group);
      out +=
          fmt::format("| {} | {} | {}/{} |\n", markdown(g.group),
                      it == first.groups.end() ? "-" : fmt::format("{}/{}", it->passed, it->total),
                      g.passed, g.total);
    }
  }
  if (!replies.empty()) out += "\n| prompt | before | after | passed |\n|---|---|---|---|\n";
  for (size_t i = 0; i < std::min(most_replies, replies.size()); ++i) {
    const ReplyHistory& h = replies[i];
    out +=
        fmt::format("| {} | {} | {} | {} |\n", markdown(h.prompt), markdown(h.first.text),
                    h.answered_again() ? markdown(h.last.text) : "", h.last.passed ? "yes" : "no");
  }
  if (replies.size() > most_replies) {
    out += fmt::format("\n{} more in replies.jsonl.\n", replies.size() - most_replies);
  }
  return out + "\n";
}

}  // namespace nibble
