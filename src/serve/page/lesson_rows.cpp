// SPDX-License-Identifier: MIT
#include "serve/page/lesson_rows.h"

#include <algorithm>
#include <map>

#include "core/file.h"
#include "core/json.h"
#include "data/read/data_reader.h"
#include "data/records.h"
#include "runlog/html_page.h"
#include "serve/api/api_error.h"
#include "serve/api/token_json.h"

namespace nibble {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostProblems = 20;

std::vector<Message> messages_of(const LessonRow& row) {
  if (row.line.empty()) return {{Role::user, row.question}, {Role::assistant, row.answer}};
  return parse_json_record(row.line, DataUse::fine_tune, DataWants::learnable).messages;
}

// One question and one answer can be edited; anything else is shown by its last two.
Json row_json(const DataRecord& record, const std::string& line) {
  const auto& m = record.messages;
  const size_t n = m.size();
  Json row = {{"question", n >= 2 ? m[n - 2].content : ""}, {"answer", m.back().content}};
  const bool plain = n == 2 && m[0].role == Role::user && record.tools.empty();
  if (!plain) row["line"] = line;
  return row;
}

// A token has a byte at least, so an answer cannot have more of them than bytes.
int64_t tokens_of(const std::string& answer) {
  constexpr size_t kMore = 16, kMost = 512;
  return int64_t(std::min(kMost, answer.size() + kMore));
}

class ProbeList {
 public:
  void add(const char* group, const std::string& question, const Json& rules, int64_t max_tokens) {
    const size_t n = ++count_[group];
    if (n > kMostProbes) return;
    list_.push_back({{"id", fmt::format("{}-{}", group, n)},
                     {"group", group},
                     {"language", *html_language(question) ? "zh" : "en"},
                     {"messages", Json::array({{{"role", "user"}, {"content", question}}})},
                     {"rules", rules},
                     {"max_tokens", max_tokens}});
  }
  const Json& list() const { return list_; }

 private:
  Json list_ = Json::array();
  std::map<std::string, size_t> count_;
};

}  // namespace

Json rows_of_file(const std::string& name, const std::string& text) {
  const auto format = format_named(std::filesystem::path(name).filename(), DataUse::fine_tune);
  if (!format)
    throw_invalid("name", "'{}': a file of rows ends in .tsv, .jsonl, .json, .csv or .txt", name);
  Json out = {{"rows", Json::array()}, {"problems", Json::array()}};
  try {
    ReadRules rules;
    rules.format = *format;
    const DataReader reader(text, name, rules);
    for (size_t i = 0; i < reader.units().size() && out["rows"].size() < LessonLimits::kRows; ++i) {
      const DataReader::Result r = reader.read(i);
      if (r.error.empty()) {
        out["rows"].push_back(row_json(r.record, reader.line_of(i)));
      } else if (out["problems"].size() < kMostProblems) {
        out["problems"].push_back(fmt::format("line {}: {}", r.line, r.error));
      }
    }
  } catch (const Error& e) {
    throw_invalid("text", "{}", e.what());
  }
  return out;
}

void write_lesson_rows(const Lesson& l, const std::filesystem::path& folder) {
  std::string rows;
  for (const LessonRow& r : l.rows) {
    rows += r.line.empty() ? chat_line(messages_of(r)) : r.line + "\n";
  }
  write_new_file(folder / "rows.jsonl", rows);
  if (l.keep != LessonKeep::prompts) return;
  std::string prompts;
  for (const std::string& p : l.prompts) prompts += json_text({{"prompt", p}}) + "\n";
  write_new_file(folder / "keep.jsonl", prompts);
}

void write_lesson_probes(const Lesson& l, const std::vector<std::string>& others,
                         const std::filesystem::path& folder) {
  constexpr int64_t kReply = 48;
  const Json sound = Json::array({{{"no_repetition", true}}});
  ProbeList probes;
  for (const LessonRow& r : l.rows) {
    if (!r.line.empty()) continue;  // its turns before are not asked here
    probes.add("taught", r.question, Json::array({{{"contains", r.answer}}, {{"stops", true}}}),
               tokens_of(r.answer));
  }
  if (l.keep == LessonKeep::prompts) {
    for (const std::string& p : l.prompts) probes.add("kept", p, sound, kReply);
  }
  for (const std::string& p : others) probes.add("other", p, sound, kReply);
  const Json file = {{"name", "lesson"}, {"version", 1}, {"probes", probes.list()}};
  write_new_file(folder / "probes.json", json_text(file) + "\n");
}

RowTokens row_tokens(const Lesson& l, const Tokenizer& tokenizer, const ChatTemplate& style) {
  const auto count = [&](const std::vector<Message>& messages, GenerationPrompt prompt) {
    const ChatOptions options{style, prompt, {}};
    return int64_t(encode_chat(tokenizer, messages, {}, options, ContentTokens::plain).size());
  };
  RowTokens t;
  for (const LessonRow& r : l.rows) {
    const int64_t n = count(messages_of(r), GenerationPrompt::no);
    t.longest = std::max(t.longest, n);
    t.all += n;
  }
  if (l.keep != LessonKeep::prompts) return t;
  for (const std::string& p : l.prompts) {
    t.longest_prompt = std::max(t.longest_prompt, count({{Role::user, p}}, GenerationPrompt::yes));
  }
  return t;
}

}  // namespace nibble
