// SPDX-License-Identifier: MIT
#include "eval/damage/check_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "runlog/html_page.h"

namespace nibble {
namespace {

using PageJson = nlohmann::json;
using Rows = std::vector<const PageJson*>;

// Beside the style of all pages.
constexpr const char* kPageStyle =
    ".turn{margin:.15em 0}.turn b{color:var(--soft);font-weight:600;margin-right:.5em}\n"
    "mark{background:var(--warnback);color:inherit;border-radius:3px;padding:0 2px}\n";

// A number of any member, or a dash: what is not finite is a text there.
std::string page_number(const PageJson& j, const char* key, const char* format, double times = 1) {
  const auto it = j.find(key);
  if (it == j.end()) return "–";
  if (!it->is_number()) return html_text(it->is_string() ? it->get<std::string>() : "–");
  return fmt::format(fmt::runtime(format), it->get<double>() * times);
}

std::string page_text(const PageJson& j, const char* key) {
  const auto it = j.find(key);
  return it != j.end() && it->is_string() ? it->get<std::string>() : std::string();
}

std::string page_cell(const std::string& html, bool number = true) {
  return fmt::format("<td{}>{}</td>", number ? " class=\"number\"" : "", html);
}

std::string page_table(const std::vector<std::string>& heads, const std::string& rows) {
  std::string out = "<div class=\"wide\"><table>\n<tr>";
  for (size_t i = 0; i < heads.size(); ++i) {
    out += fmt::format("<th{}>{}</th>", i > 0 ? " class=\"number\"" : "", html_text(heads[i]));
  }
  return out + "</tr>\n" + rows + "</table></div>\n";
}

Rows checks_named(const PageJson& report, const std::string& name) {
  Rows rows;
  for (const PageJson& c : report["checks"]) {
    if (page_text(c, "check") == name) rows.push_back(&c);
  }
  return rows;
}

std::string with_error(const PageJson& score) {
  return page_number(score, "percent", "{:.2f} %") + " ± " +
         page_number(score, "standard_error", "{:.2f}");
}

std::string moved_rows(const PageJson& text) {
  std::string out;
  for (const PageJson& m : text["moved"]) {
    const auto likely = [&](const char* token, const char* probability) {
      return fmt::format("<code>{}</code> {}", html_text(page_text(m, token)),
                         page_number(m, probability, "{:.1f} %", 100));
    };
    const std::string context = page_text(m, "context");
    out += fmt::format("<tr>{}<td class=\"reply\"{}>{}<mark>{}</mark></td>{}{}</tr>\n",
                       page_cell(page_number(m, "divergence", "{:.3f}")), html_language(context),
                       html_text(context), html_text(page_text(m, "token")),
                       page_cell(likely("base_top", "base_top_probability"), false),
                       page_cell(likely("top", "top_probability"), false));
  }
  return out;
}

std::string texts_section(const Rows& texts) {
  if (texts.empty()) return "";
  std::string rows, moved;
  bool compared = false;
  for (const PageJson* t : texts) {
    compared = compared || t->contains("divergence");
    const std::string loss =
        page_number(*t, "loss", "{:.4f}") + " ± " + page_number(*t, "standard_error", "{:.4f}");
    rows +=
        fmt::format("<tr>{}{}{}{}{}{}{}</tr>\n", page_cell(html_text(page_text(*t, "file")), false),
                    page_cell(page_number(*t, "base_loss", "{:.4f}")), page_cell(loss),
                    page_cell(page_number(*t, "loss_change", "{:+.4f}")),
                    page_cell(page_number(*t, "divergence", "{:.5f}") + " ± " +
                              page_number(*t, "divergence_error", "{:.5f}")),
                    page_cell(page_number(*t, "agreement", "{:.2f} %", 100)),
                    page_cell(page_number(*t, "tokens", "{:.0f}")));
    if (t->contains("moved") && !(*t)["moved"].empty()) {
      moved += fmt::format(
          "<details><summary>{}: what moved most</summary><div class=\"wide\"><table>\n"
          "<tr><th class=\"number\">KL</th><th>context, and what follows</th><th>most likely "
          "before</th><th>now</th></tr>\n{}</table></div></details>\n",
          html_text(page_text(*t, "file")), moved_rows(*t));
    }
  }
  std::string out = "<h2 id=\"texts\">Text it was not trained on</h2>\n";
  if (compared) {
    out +=
        "<p class=\"soft\">KL(base || model) and losses in nats a token; agreement: both think "
        "the same token most likely.</p>\n";
  }
  return out +
         page_table({"text", "loss before", "loss", "change", "KL", "top-1 agreement", "tokens"},
                    rows) +
         moved;
}

std::string choices_section(const Rows& files) {
  if (files.empty()) return "";
  std::string rows;
  for (const PageJson* f : files) {
    const PageJson none = PageJson::object();
    const bool base = f->contains("base");
    const PageJson& before = base ? (*f)["base"] : none;
    const auto score = [](const PageJson& j, const char* key) {
      return j.contains(key) ? with_error(j[key]) : "–";
    };
    rows += fmt::format(
        "<tr>{}{}{}{}{}{}{}</tr>\n", page_cell(html_text(page_text(*f, "file")), false),
        page_cell(page_number(*f, "questions", "{:.0f}")), page_cell(score(before, "accuracy")),
        page_cell(score(*f, "accuracy")), page_cell(score(before, "accuracy_by_length")),
        page_cell(score(*f, "accuracy_by_length")),
        page_cell(base ? fmt::format("{} ({} lost, {} won)", page_number(*f, "changed", "{:.0f}"),
                                     page_number(*f, "lost", "{:.0f}"),
                                     page_number(*f, "won", "{:.0f}"))
                       : "–"));
  }
  return "<h2 id=\"choices\">Questions with choices</h2>\n"
         "<p class=\"soft\">Share of right answers by likelihood, ± one standard error.</p>\n" +
         page_table({"file", "questions", "before", "now", "by length before", "by length now",
                     "answers changed"},
                    rows);
}

const PageJson* find_group(const PageJson& scores, const std::string& name) {
  if (!scores.contains("groups")) return nullptr;
  for (const PageJson& g : scores["groups"]) {
    if (page_text(g, "name") == name) return &g;
  }
  return nullptr;
}

std::string score_cell_of(const PageJson* score) {
  if (!score) return page_cell("–");
  return page_cell(fmt::format("{} of {}, {}", page_number(*score, "passed", "{:.0f}"),
                               page_number(*score, "total", "{:.0f}"), with_error(*score)));
}

std::string score_rows(const PageJson& probes) {
  std::string rows;
  const PageJson none = PageJson::object();
  const PageJson& before = probes.contains("before") ? probes["before"] : none;
  for (const PageJson& g : probes["scores"]["groups"]) {
    const std::string name = page_text(g, "name");
    const PageJson* was = find_group(before, name);
    rows += fmt::format("<tr>{}{}{}</tr>\n", page_cell(html_text(name), false), score_cell_of(was),
                        score_cell_of(&g));
    if (!g.contains("languages") || g["languages"].size() < 2) continue;
    for (const auto& [language, score] : g["languages"].items()) {
      const bool had = was && was->contains("languages") && (*was)["languages"].contains(language);
      rows += fmt::format("<tr>{}{}{}</tr>\n",
                          page_cell(fmt::format("<span class=\"soft\">{}, {}</span>",
                                                html_text(name), html_text(language)),
                                    false),
                          score_cell_of(had ? &(*was)["languages"][language] : nullptr),
                          score_cell_of(&score));
    }
  }
  return rows;
}

std::string turns_of(const PageJson& turns) {
  std::string out;
  for (const PageJson& m : turns) {
    const std::string content = page_text(m, "content");
    out += fmt::format("<div class=\"turn\"{}><b>{}</b>{}</div>", html_language(content),
                       html_text(page_text(m, "role")), html_text(content));
  }
  return out;
}

std::string dialogues_of(const PageJson& probes) {
  if (!probes.contains("dialogues") || probes["dialogues"].empty()) return "";
  std::string rows;
  for (const PageJson& d : probes["dialogues"]) {
    const auto side = [&](const char* turns, const char* passed, const char* label) {
      if (!d.contains(turns)) return std::string("<td></td>");
      const bool ok = d.value(passed, false);
      return fmt::format(
          "<td class=\"reply\" data-label=\"{}\"><span class=\"{}\">{}</span>{}</td>", label,
          ok ? "good" : "bad", ok ? "✓" : "✗", turns_of(d[turns]));
    };
    rows += fmt::format("<tr><td>{}</td>{}{}</tr>\n", html_text(page_text(d, "group")),
                        side("before", "passed_before", "before"), side("now", "passed", "now"));
  }
  return "<h3>Dialogues</h3>\n<div class=\"wide replies\"><table>\n"
         "<tr><th>group</th><th>before</th><th>now</th></tr>\n" +
         rows + "</table></div>\n";
}

std::string probes_section(const Rows& probes) {
  std::string out;
  for (const PageJson* p : probes) {
    out += fmt::format("<h2 id=\"probes\">Probes: {}</h2>\n", html_text(page_text(*p, "probes")));
    out += page_table({"group", "before", "now"}, score_rows(*p));
    out += dialogues_of(*p);
  }
  return out;
}

std::string verdicts(const PageJson& report) {
  std::string rows;
  for (const PageJson& c : report["checks"]) {
    const bool ok = c.value("passed", false);
    rows += fmt::format(
        "<tr><td><span class=\"badge {}\">{}</span></td><td>{}</td><td "
        "class=\"reply\">{}</td></tr>\n",
        ok ? "good" : "bad", ok ? "pass" : "fail", html_text(page_text(c, "check")),
        html_text(page_text(c, "figure")));
  }
  return "<h2 id=\"checks\">Checks</h2>\n<div class=\"wide\"><table>\n" + rows + "</table></div>\n";
}

}  // namespace

std::string check_page(const PageJson& report) {
  const std::string model = page_text(report, "model"), against = page_text(report, "against");
  const bool passed = report.value("passed", false);
  std::string out = html_head("check of " + model, kPageStyle, "");
  out += fmt::format(
      "<body>\n<main>\n<header><h1>{}</h1><span class=\"badge {}\">{}</span></header>\n",
      html_text(model), passed ? "good" : "bad", passed ? "passed" : "failed");
  std::string line = "nibble check";
  if (!against.empty()) line += ", against " + against;
  if (const std::string backend = page_text(report, "backend"); !backend.empty()) {
    line += ", on " + backend;
  }
  out += fmt::format("<p class=\"soft\">{}</p>\n", html_text(line));
  return out + probes_section(checks_named(report, "probes")) +
         texts_section(checks_named(report, "text")) +
         choices_section(checks_named(report, "choices")) + verdicts(report) +
         "</main>\n</body>\n</html>\n";
}

}  // namespace nibble
