// SPDX-License-Identifier: MIT
#include "runlog/run_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/file.h"
#include "core/memory_info.h"
#include "core/utc_time.h"
#include "runlog/html_page.h"
#include "runlog/run_folder.h"
#include "runlog/run_plots.h"
#include "runlog/run_report_style.h"
#include "runlog/svg_plot.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;
constexpr size_t kMostReplies = 200;  // of a group; the folder has them all

std::string number(double v, const char* format) {
  return std::isfinite(v) ? fmt::format(fmt::runtime(format), v) : "–";
}

const char* state_colour(const RunRecord& r) {
  const RunState state = r.status.state;
  if (r.gone || state == RunState::failed || state == RunState::collapsed) return "bad";
  return state == RunState::finished ? "good" : "warn";
}

std::string short_time(const std::string& utc) {
  return utc.size() >= 19 ? utc.substr(0, 10) + " " + utc.substr(11, 8) + " UTC" : utc;
}

std::string card(const std::string& value, const std::string& label) {
  return fmt::format("<div class=\"card\"><b>{}</b><span>{}</span></div>\n", html_text(value),
                     html_text(label));
}

std::string title(const RunRecord& r) {
  std::string out = fmt::format("<header><h1>{}</h1><span class=\"badge {}\">{}</span></header>\n",
                                html_text(r.name), state_colour(r), r.state_name());
  if (!r.status.message.empty()) {
    out +=
        fmt::format("<p class=\"{} reply\">{}</p>\n", state_colour(r), html_text(r.status.message));
  }
  std::string line = fmt::format("nibble {} {}, started {}", r.status.command, r.version,
                                 short_time(r.status.started_utc));
  if (!r.device.empty()) line += ", on " + r.device;
  if (r.chain) {
    line += fmt::format(", stage {} of {} ({}) of the chain {}", r.chain->stage, r.chain->stages,
                        r.chain->stage_name, r.chain->chain);
  }
  if (!r.continues.empty()) {
    line += fmt::format(", continues {} after step {}", r.continues, r.continued_at);
  }
  out += fmt::format("<p class=\"soft\">{}</p>\n", html_text(line));
  for (const std::string& w : r.warnings) {
    out += fmt::format("<p class=\"warn reply\">Warning: {}</p>\n", html_text(w));
  }
  return out;
}

std::string cards(const RunRecord& r) {
  const StepRecord& last = r.status.last;
  const RunTotals& t = r.totals;
  std::string out = "<div class=\"cards\">\n";
  out += card(r.status.steps > 0 ? fmt::format("{} / {}", last.step, r.status.steps)
                                 : fmt::format("{}", last.step),
              t.skipped > 0 ? fmt::format("steps ({} skipped)", t.skipped) : "steps");
  out += card(number(last.loss, "{:.4f}"), "last loss, first " + number(t.first_loss, "{:.4f}"));
  if (t.lowest.step > 0) {
    out +=
        card(number(t.lowest.loss, "{:.4f}"), fmt::format("lowest loss, step {}", t.lowest.step));
  }
  out += card(number(last.smoothed_loss, "{:.4f}"), "loss smoothed over about 20 steps");
  if (t.largest_grad.step > 0) {
    out += card(number(last.grad_norm, "{:.3g}"),
                fmt::format("gradient norm, largest {:.3g} at step {}", t.largest_grad.loss,
                            t.largest_grad.step));
  }
  if (t.kept_tokens > 0) {
    out += card(number(t.kept_loss, "{:.5f}"),
                "nats a token on kept rows, taught rows " + number(t.taught_loss, "{:.4f}"));
  }
  if (r.status.held_out_step > 0) {
    out += card(number(r.status.held_out_loss, "{:.4f}"),
                "held-out loss, best " + number(t.best_held_out.loss, "{:.4f}"));
  }
  if (!r.gates.empty()) {
    for (const GateScore& g : r.gates.back().groups) {
      out += card(fmt::format("{} / {}", g.passed, g.total), g.group + " passed");
    }
  }
  out += card(duration_text(r.seconds()), "time");
  out += card(number(t.seconds > 0 ? double(t.tokens) / t.seconds : kNoValue, "{:.0f}"),
              "tokens per second");
  out += card(format_bytes(r.memory.peak_rss_bytes), "peak memory of the process");
  if (r.memory.peak_gpu_mib > 0) {
    out += card(format_bytes(uint64_t(r.memory.peak_gpu_mib) << 20), "peak GPU memory");
  }
  return out + "</div>\n";
}

std::string charts(const ReportContent& c) {
  std::string out = "<h2 id=\"charts\">Curves</h2>\n<div class=\"charts\">\n";
  for (NamedPlot& p : run_plots(c.series, c.gates, "")) {
    p.plot.width = 520;
    p.plot.height = 320;
    out += fmt::format("<figure class=\"chart\">\n{}<div class=\"tip\"></div></figure>\n",
                       svg_element(p.plot));
  }
  return out + "</div>\n";
}

std::string score_cell(const GateScore* s) {
  if (!s) return "<td>–</td>";
  const double share = 100.0 * double(s->passed) / double(std::max<int64_t>(1, s->total));
  const std::string languages =
      s->languages.empty()
          ? ""
          : fmt::format(" <span class=\"soft\">{}</span>", html_text(s->languages));
  return fmt::format(
      "<td>{} of {} ({:.1f} %){}<div class=\"bar\"><i style=\"width:{:.1f}%\"></i></div></td>",
      s->passed, s->total, share, languages, std::clamp(share, 0.0, 100.0));
}

std::string gates(const std::vector<GateScores>& list, const std::vector<std::string>& collapses) {
  std::string out = "<h2 id=\"gates\">Gates</h2>\n";
  for (const std::string& c : collapses) {
    out += fmt::format("<p class=\"bad reply\">Collapse at {}</p>\n", html_text(c));
  }
  if (list.empty()) return out + "<p class=\"soft\">No probes were asked in this run.</p>\n";
  const GateScores &first = list.front(), &last = list.back();
  const auto score = [](const GateScores& g, const std::string& group) {
    const auto it = std::ranges::find(g.groups, group, &GateScore::group);
    return it == g.groups.end() ? nullptr : &*it;
  };
  out += fmt::format(
      "<div class=\"wide\"><table>\n<tr><th>group</th><th>step {}</th><th>step {}</th></tr>\n",
      first.step, last.step);
  for (const GateScore& g : last.groups) {
    out += fmt::format("<tr><td>{}</td>{}{}</tr>\n", html_text(g.group),
                       score_cell(score(first, g.group)), score_cell(&g));
  }
  return out + "</table></div>\n";
}

std::string reply_cell(const Reply& r, const char* label) {
  const std::string why =
      r.passed || r.failed.empty()
          ? ""
          : fmt::format("<div class=\"why\">not: {}</div>", html_text(r.failed));
  return fmt::format(
      "<td class=\"reply\" data-label=\"{}\"{}><span class=\"{}\">{}</span> {}{}</td>", label,
      html_language(r.text), r.passed ? "good" : "bad", r.passed ? "✓" : "✗", html_text(r.text),
      why);
}

std::string reply_group(const std::string& group, std::vector<const ReplyHistory*> list) {
  const auto passed = std::ranges::count_if(list, [](const auto* r) { return r->last.passed; });
  std::string out = fmt::format("<details{}><summary>{}: {} of {} passed</summary>\n",
                                list.size() <= 12 ? " open=\"open\"" : "",
                                html_text(group.empty() ? "replies" : group), passed, list.size());
  // What failed is what one looks for.
  std::ranges::stable_sort(
      list, [](const auto* a, const auto* b) { return !a->last.passed && b->last.passed; });
  out +=
      "<div class=\"wide replies\"><table>\n"
      "<tr><th>prompt</th><th>before</th><th>after</th></tr>\n";
  for (size_t i = 0; i < list.size() && i < kMostReplies; ++i) {
    const ReplyHistory& r = *list[i];
    const std::string before = fmt::format("step {}", r.first.step);
    const std::string after = fmt::format("step {}", r.last.step);
    out += fmt::format("<tr><td class=\"reply\"{}>{}</td>{}{}</tr>\n", html_language(r.prompt),
                       html_text(r.prompt), reply_cell(r.first, before.c_str()),
                       r.answered_again() ? reply_cell(r.last, after.c_str()) : "<td></td>");
  }
  out += "</table></div>\n";
  if (list.size() > kMostReplies) {
    out +=
        fmt::format("<p class=\"soft\">{} more in replies.jsonl</p>\n", list.size() - kMostReplies);
  }
  return out + "</details>\n";
}

std::string replies(const std::vector<ReplyHistory>& list) {
  std::string out = "<h2 id=\"replies\">Replies</h2>\n";
  if (list.empty()) return out + "<p class=\"soft\">No replies were recorded.</p>\n";
  std::vector<std::pair<std::string, std::vector<const ReplyHistory*>>> groups;
  for (const ReplyHistory& r : list) {
    auto it = std::ranges::find(groups, r.group, [](const auto& g) { return g.first; });
    if (it == groups.end()) it = groups.insert(groups.end(), {r.group, {}});
    it->second.push_back(&r);
  }
  for (const auto& [group, members] : groups) out += reply_group(group, members);
  return out;
}

std::string self_test(const std::optional<SelfTestRecord>& t) {
  if (!t) return "";
  std::string out = "<h2 id=\"self-test\">Self-test of the exported model</h2>\n";
  out += t->passed ? "<p class=\"good\">Passed.</p>\n"
                   : fmt::format("<p class=\"bad reply\">Failed: {}</p>\n", html_text(t->problem));
  out += "<div class=\"wide\"><table>\n";
  const auto row = [&](const char* name, const std::string& text) {
    out += fmt::format("<tr><td>{}</td><td class=\"reply\"{}>{}</td></tr>\n", name,
                       html_language(text), html_text(text));
  };
  row("loss of the first sample", number(t->loss_in_training, "{:.4f}") + " in training, " +
                                      number(t->loss_from_file, "{:.4f}") + " from the file");
  if (!t->prompt.empty()) {
    row("prompt", t->prompt);
    row("reply", t->reply);
  }
  return out + "</table></div>\n";
}

std::string run_link(const std::string& name) {
  std::string href = "../";  // a name may hold what means something in an address
  for (const char c : name) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '_' || c == '.';
    href += plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return fmt::format("<a href=\"{}/report.html\">{}</a>", href, html_text(name));
}

std::string lineage(const ReportContent& c) {
  std::string out = "<h2 id=\"lineage\">Lineage</h2>\n<ol>\n";
  if (!c.lineage.origin.empty()) {
    out += fmt::format("<li><code class=\"path\">{}</code> (no run here made it)</li>\n",
                       html_text(c.lineage.origin));
  }
  for (auto it = c.lineage.ancestors.rbegin(); it != c.lineage.ancestors.rend(); ++it) {
    out += fmt::format("<li>{}</li>\n", run_link(*it));
  }
  out += fmt::format("<li><strong>{}</strong> (this run)</li>\n", html_text(c.record.name));
  for (const std::string& child : c.lineage.children) {
    out += fmt::format("<li>{}, from its output</li>\n", run_link(child));
  }
  return out + "</ol>\n";
}

std::string files(const RunRecord& r) {
  std::string out = "<h2 id=\"files\">Files</h2>\n";
  if (r.files.empty()) return out + "<p class=\"soft\">None were recorded.</p>\n";
  out +=
      "<div class=\"wide\"><table>\n<tr><th>role</th><th>file</th><th class=\"number\">size</th>"
      "<th>SHA-256</th></tr>\n";
  for (const RunFile& f : r.files) {
    out += fmt::format(
        "<tr><td>{}</td><td class=\"path mono\">{}</td><td class=\"number\">{}</td>"
        "<td class=\"hash mono\">{}</td></tr>\n",
        html_text(f.role), html_text(f.path), format_bytes(f.bytes),
        f.sha256.empty() ? "not known" : html_text(f.sha256));
  }
  return out + "</table></div>\n";
}

std::string configuration(const RunRecord& r) {
  std::string out =
      "<h2 id=\"config\">Configuration</h2>\n<pre>" + html_text(r.command_line) + "</pre>\n";
  if (!r.directory.empty()) {
    out += fmt::format("<p class=\"soft\">in <code>{}</code></p>\n", html_text(r.directory));
  }
  out += "<details><summary>all settings</summary><div class=\"wide\"><table>\n";
  for (const auto& [key, value] : r.config) {
    out += fmt::format("<tr><td class=\"mono\">{}</td><td class=\"path mono\">{}</td></tr>\n",
                       html_text(key), html_text(value));
  }
  return out + "</table></div></details>\n";
}

std::string memory(const RunMemory& m) {
  if (m.arenas.empty()) return "";
  std::string out =
      "<h2 id=\"memory\">Memory</h2>\n<div class=\"wide\"><table>\n"
      "<tr><th>arena</th><th class=\"number\">peak</th></tr>\n";
  for (const auto& [name, bytes] : m.arenas) {
    out += fmt::format("<tr><td>{}</td><td class=\"number\">{}</td></tr>\n", html_text(name),
                       format_bytes(bytes));
  }
  return out + "</table></div>\n";
}

}  // namespace

std::string report_html(const ReportContent& c) {
  return html_head(c.record.name + ", a run of nibble " + c.record.status.command, svg_style(),
                   kReportScript) +
         "<body>\n<main>\n" + title(c.record) + cards(c.record) + charts(c) +
         gates(c.gates, c.record.collapses) + replies(c.replies) + self_test(c.record.self_test) +
         lineage(c) + files(c.record) + memory(c.record.memory) + configuration(c.record) +
         "</main>\n<script>" + kReportScript + "</script>\n</body>\n</html>\n";
}

ReportContent read_report(const fs::path& folder) {
  ReportContent c;
  c.record = read_record(folder);
  c.series = read_series(folder);
  c.gates = read_gates(folder);
  if (!c.gates.empty()) c.record.gates = {c.gates.front(), c.gates.back()};
  c.replies = read_replies(folder);
  const fs::path base = fs::absolute(folder).lexically_normal().parent_path();
  c.lineage = lineage_of(c.record, read_records(base));
  return c;
}

void write_report(const fs::path& folder) {
  replace_file(folder / "report.html", report_html(read_report(folder)));
}

}  // namespace nibble
