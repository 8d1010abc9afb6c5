// SPDX-License-Identifier: MIT
#include "runlog/diary/diary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/file.h"
#include "core/utc_time.h"
#include "runlog/diary/markdown.h"
#include "runlog/diary/prune_log.h"
#include "runlog/diary/run_notes.h"
#include "runlog/run_series.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;

std::string key_of(const std::string& kind, const std::string& name, const std::string& time) {
  // Two dashes in a row would end the comment.
  std::string text = fmt::format("nibble {}: {} {}", kind, name, time);
  for (size_t at; (at = text.find("--")) != std::string::npos;) text.replace(at, 2, "- ");
  std::ranges::replace_if(
      text, [](char c) { return c == '>' || static_cast<unsigned char>(c) < 0x20; }, ' ');
  return "<!-- " + text + " -->";
}

std::string loss_text(double v) { return std::isfinite(v) ? fmt::format("{:.4f}", v) : "unknown"; }

std::string files_text(const RunRecord& r, const char* role) {
  std::string out;
  for (const RunFile* f : r.with_role(role)) {
    out += fmt::format("{}{}{}", out.empty() ? "" : ", ", markdown_code(f->path),
                       f->sha256.empty() ? "" : " (sha256 " + f->sha256.substr(0, 12) + ")");
  }
  return out;
}

std::string settings_text(const RunRecord& r) {
  std::string out;
  for (const char* key : {"lr", "steps", "epochs", "seq-len", "batch-size", "accumulate", "seed",
                          "recipe", "optimizer-state-mode", "lr-scale", "train-last-layers"}) {
    const std::string v = r.setting(key);
    if (!v.empty()) out += fmt::format("{}{} {}", out.empty() ? "" : ", ", key, v);
  }
  return out;
}

std::string scores_text(const GateScores& gate) {
  std::string out;
  for (const GateScore& g : gate.groups) {
    out += fmt::format("{}{} {}/{}", out.empty() ? "" : ", ", g.group, g.passed, g.total);
  }
  return out;
}

// One line of a list under a bold word.
class Section {
 public:
  explicit Section(const char* title) : text_(fmt::format("**{}**\n", title)) {}
  void line(const std::string& name, const std::string& markdown) {
    if (!markdown.empty()) text_ += fmt::format("- {}: {}\n", name, markdown);
  }
  std::string text() const { return text_ + "\n"; }

 private:
  std::string text_;
};

std::string note_name(const RunNote& n) {
  return n.kind == NoteKind::good_for ? n.time_utc + ", good for" : n.time_utc;
}

DiaryEntry run_entry(const fs::path& folder, const RunRecord& r,
                     const std::vector<RunNote>& notes) {
  constexpr size_t kMostReplies = 6;
  DiaryEntry e{key_of("run", r.name, r.status.started_utc), {}};
  e.text = e.key + "\n";
  Section idea("Idea"), method("Method"), result("Result");
  for (const RunNote& n : notes) {
    e.text += key_of("note", r.name, n.time_utc + n.text) + "\n";
    idea.line(note_name(n), markdown_text(n.text));
  }
  if (notes.empty()) idea.line("note", "none was made");
  method.line("command", markdown_code(r.command_line));
  method.line("made from", files_text(r, "weights"));
  method.line("taught", files_text(r, "train-data"));
  method.line("kept", files_text(r, "kept-data"));
  method.line("settings", markdown_text(settings_text(r)));
  method.line("by", markdown_text(r.made_by()));
  result.line("state", markdown_text(r.state_name() +
                                     (r.status.message.empty() ? "" : ": " + r.status.message)));
  result.line("steps", fmt::format("{} in {}", r.status.last.step, duration_text(r.seconds())));
  result.line("loss", fmt::format("{} at first, {} at last", loss_text(r.totals.first_loss),
                                  loss_text(r.status.last.loss)));
  if (r.status.held_out_step > 0) result.line("held out", loss_text(r.status.held_out_loss));
  if (!r.gates.empty()) {
    result.line("probes",
                markdown_text(fmt::format("before: {}; after: {}", scores_text(r.gates.front()),
                                          scores_text(r.gates.back()))));
  }
  for (const std::string& c : r.collapses) result.line("collapse", markdown_text(c));
  const std::vector<ReplyHistory> replies = read_replies(folder);
  for (size_t i = 0; i < std::min(kMostReplies, replies.size()); ++i) {
    result.line(markdown_text(replies[i].prompt), markdown_text(replies[i].last.text));
  }
  result.line("weights", r.status.output.empty() ? "" : markdown_code(r.status.output));
  e.text += fmt::format("## {} ({})\n\n", markdown_text(r.name), r.status.started_utc);
  e.text += idea.text() + method.text() + result.text();
  return e;
}

}  // namespace

std::vector<DiaryEntry> diary_entries(const fs::path& base, const std::vector<RunRecord>& runs) {
  std::vector<DiaryEntry> entries;
  for (const RunRecord& r : runs) {
    if (r.status.state == RunState::running && !r.gone) continue;
    const fs::path folder = base / r.name;
    const std::vector<RunNote> notes = read_notes(folder);
    entries.push_back(run_entry(folder, r, notes));
    for (const RunNote& n : notes) {
      const std::string key = key_of("note", r.name, n.time_utc + n.text);
      entries.push_back(
          {key, fmt::format("{}\n### Later, on {}\n\n- {}: {}\n\n", key, markdown_text(r.name),
                            note_name(n), markdown_text(n.text))});
    }
  }
  for (const PruneLine& p : read_prune_log(base)) {
    const std::string key = key_of("prune", p.what + " " + p.name, p.time_utc);
    const std::string of = p.run.empty() ? "" : fmt::format(" of {}", markdown_text(p.run));
    entries.push_back({key, fmt::format("{}\n### Pruned: {} {}{}\n\n- {}: moved to {} ({})\n\n",
                                        key, p.what, markdown_code(p.name), of, p.time_utc,
                                        markdown_code(p.to), markdown_text(p.reason))});
  }
  return entries;
}

size_t append_to_diary(const fs::path& file, const std::vector<DiaryEntry>& entries) {
  std::error_code ec;
  const bool there = fs::exists(file, ec);
  std::string have = there ? read_text_file(file) : "";
  std::string more = there ? "" : "# Diary\n\n";
  size_t count = 0;
  for (const DiaryEntry& e : entries) {
    if (have.find(e.key) != std::string::npos) continue;
    have += e.text;
    more += e.text;
    ++count;
  }
  if (count > 0) append_file(file, more);
  return count;
}

}  // namespace nibble
