// SPDX-License-Identifier: MIT
#include "data/records.h"

#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "core/durable/directories.h"
#include "core/error.h"
#include "core/file.h"
#include "core/log.h"
#include "data/lines.h"
#include "data/read/data_files.h"
#include "data/read/ignored_keys.h"
#include "tokenizer/unicode.h"

namespace nibble {
namespace {

using nlohmann::ordered_json;

DataLine data_line(std::string line, DataRecord record) {
  DataLine d;
  for (Message& m : record.messages) {
    if (m.role == Role::user) d.asked.push_back(m.content);
    d.texts.push_back(std::move(m.content));
  }
  if (record.messages.empty()) d.texts.push_back(std::move(record.text));
  d.line = std::move(line);
  return d;
}

bool is_sign(char32_t c) { return c == '+' || c == '-' || c == '#'; }  // 3+2 is not 3-2

}  // namespace

std::string chat_line(std::span<const std::string> turns) {
  ordered_json list = ordered_json::array();
  for (size_t i = 0; i < turns.size(); ++i) {
    list.push_back({{"role", i % 2 == 0 ? "user" : "assistant"}, {"content", turns[i]}});
  }
  return ordered_json{{"messages", list}}.dump() + "\n";
}

std::string chat_line(std::span<const Message> messages) {
  ordered_json list = ordered_json::array();
  for (const Message& m : messages) {
    list.push_back({{"role", role_name(m.role)}, {"content", m.content}});
  }
  return ordered_json{{"messages", list}}.dump() + "\n";
}

std::string text_line(std::string_view text) { return ordered_json{{"text", text}}.dump() + "\n"; }

LineFormat lines_in(const std::filesystem::path& file) {
  std::optional<LineFormat> all;
  for (const DataFile& f :
       data_files(file, DataFormat::automatic, DataUse::fine_tune, ExtraKeys::count).files) {
    const LineFormat one = f.format == DataFormat::tsv ? LineFormat::tsv : LineFormat::jsonl;
    if (all && *all != one) {
      throw_usage(
          "{}: holds TSV and other formats, and lines are kept as they are: name the files "
          "of one format",
          file.string());
    }
    all = one;
  }
  return *all;
}

LineFormat lines_for(const std::filesystem::path& file) {
  const auto format = format_named(file, DataUse::fine_tune);
  if (file.extension() != ".gz") {
    if (format == DataFormat::tsv) return LineFormat::tsv;
    if (format == DataFormat::jsonl) return LineFormat::jsonl;
  }
  throw_usage("{}: lines are written to .jsonl or .tsv; use one of these names", file.string());
}

void for_each_data_line(const std::filesystem::path& file, const DataLineUse& use,
                        ExtraKeys extra) {
  IgnoredKeys ignored;
  for (const DataFile& f :
       data_files(file, DataFormat::automatic, DataUse::fine_tune, extra).files) {
    const std::string name = f.path.string();
    const DataText read = read_data_text(f.path, WithHash::no);
    const DataReader reader(read.text, name,
                            {f.format, DataUse::pretrain, Documents::paragraphs, extra});
    for (size_t i = 0; i < reader.units().size(); ++i) {
      DataReader::Result r = reader.read(i);
      if (!r.error.empty()) throw_format("{}:{}: {}", name, r.line, r.error);
      ignored.add(r.record);
      use(data_line(reader.line_of(i), std::move(r.record)));
    }
  }
  if (!ignored.empty()) log_warning("{}: {}", file.string(), ignored.text());
}

std::vector<DataLine> read_data_lines(const std::filesystem::path& file, ExtraKeys extra) {
  std::vector<DataLine> out;
  for_each_data_line(
      file, [&](DataLine&& d) { out.push_back(std::move(d)); }, extra);
  return out;
}

std::string joined(std::span<const std::string> turns) {
  return fmt::format("{}", fmt::join(turns, "\n"));
}

std::string normalised(std::string_view text, KeyRule rule) {
  const std::string repaired = repair_utf8(text);
  std::string storage, out;
  const std::string_view normal = normalize_nfc(repaired, storage);
  const UnicodeTable& table = UnicodeTable::instance();
  char32_t last = '\n';  // what stands at the end of `out`
  bool space = false;    // between it and what comes
  const auto word = [](char32_t c) { return c < kFirstCjk && c != '\n' && !is_sign(c); };
  for (size_t i = 0; i < normal.size();) {
    CodePoint c = decode_valid(normal.data() + i);
    i += c.length;
    const CharClass k = table.char_class(c.value);
    if (c.value >= 'A' && c.value <= 'Z') c.value += 32;
    const bool kept = k == CharClass::letter || k == CharClass::number || is_sign(c.value);
    if (kept && space) {
      const bool apart =
          rule == KeyRule::strict ? word(last) && word(c.value) : last < 0x80 && last != '\n';
      if (apart) out += ' ';
    }
    if (kept || c.value == '\n') {  // turns stay apart
      append_utf8(out, c.value);
      last = c.value;
      space = false;
    } else if (k == CharClass::space) {
      space = true;
    }
  }
  return out;
}

void check_answer(std::string_view text, const char* what, AnswerFile file) {
  if (valid_utf8_prefix(text) != text.size()) throw_usage("{} is not valid UTF-8", what);
  if (trim_text(text).empty()) throw_usage("{} is empty: there would be nothing to answer", what);
  if (file == AnswerFile::other) return;
  if (text.find_first_of("\t\r\n") != text.npos) {
    throw_usage("{} has a tab or a line end, which TSV cannot hold; {}", what,
                "use one line, or a .jsonl file where that is offered");
  }
  if (trim_text(text) != text) throw_usage("{} begins or ends with white space", what);
}

void refuse_existing(const std::filesystem::path& file) {
  if (std::filesystem::exists(file)) {
    throw_usage("{} exists, and data sets are never overwritten: choose another name",
                file.string());
  }
}

void write_new_file(const std::filesystem::path& file, std::string_view text) {
  refuse_existing(file);
  make_directories(file.parent_path());
  replace_file(file, text, Existing::keep);
}

void write_new_files(const std::filesystem::path& first, std::string_view first_text,
                     const std::filesystem::path& second, std::string_view second_text) {
  for (const auto& file : {first, second}) {
    refuse_existing(file);
    make_directories(file.parent_path());
  }
  AtomicFile a(first, Existing::keep), b(second, Existing::keep);
  a.write(first_text);
  b.write(second_text);
  a.commit();
  try {
    b.commit();
  } catch (...) {
    std::error_code ignored;
    std::filesystem::remove(first, ignored);
    throw;
  }
}

}  // namespace nibble
