// SPDX-License-Identifier: MIT
// Text in general: formats, lines, documents, white space, UTF-8.
#include <algorithm>

#include "core/error.h"
#include "core/log.h"
#include "data/lines.h"
#include "tokenizer/unicode.h"

namespace nibble {
namespace {

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

// The length of the valid character at an end of `text` if it is white space, else 0.
size_t space_at_front(std::string_view text) {
  for (size_t n = 1; n <= std::min<size_t>(4, text.size()); ++n) {
    if (valid_utf8_prefix(text.substr(0, n)) != n) continue;
    const char32_t c = decode_valid(text.data()).value;
    return UnicodeTable::instance().char_class(c) == CharClass::space ? n : 0;
  }
  return 0;
}
size_t space_at_back(std::string_view text) {
  for (size_t n = 1; n <= std::min<size_t>(4, text.size()); ++n) {
    const std::string_view last = text.substr(text.size() - n);
    if (valid_utf8_prefix(last) != n) continue;
    const char32_t c = decode_valid(last.data()).value;
    return UnicodeTable::instance().char_class(c) == CharClass::space ? n : 0;
  }
  return 0;
}

// Calls line(number, offset, text) for every line; a last one without its newline counts.
template <class Line>
int64_t for_each_line(std::string_view text, size_t begin, Line&& line) {
  int64_t number = 0;
  while (begin < text.size()) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    line(++number, begin, text.substr(begin, end - begin));
    begin = end + 1;
  }
  return number;
}

}  // namespace

std::optional<DataFormat> format_named(const std::filesystem::path& path, DataUse use) {
  const auto ending = [](const std::filesystem::path& name) {
    std::string e = name.extension().string();
    for (char& c : e) c = c >= 'A' && c <= 'Z' ? char(c + 32) : c;
    return e;
  };
  std::string extension = ending(path);
  if (extension == ".gz") extension = ending(path.stem());
  if (extension == ".tsv") return DataFormat::tsv;
  if (extension == ".jsonl" || extension == ".ndjson") return DataFormat::jsonl;
  if (extension == ".json") return DataFormat::json;
  if (extension == ".csv") return DataFormat::csv;
  if (extension == ".txt") return use == DataUse::pretrain ? DataFormat::text : DataFormat::tsv;
  return std::nullopt;
}

DataFormat format_of(const std::filesystem::path& path, DataUse use) {
  if (const auto format = format_named(path, use)) return *format;
  throw_usage(
      "{}: the name does not tell the format (.jsonl, .json, .csv, .tsv and .txt do, also with .gz "
      "after them, and folders of such files); choose jsonl, json, csv, tsv{}",
      path.string(), use == DataUse::pretrain ? " or text" : "");
}

std::string_view trim_text(std::string_view text) {
  while (const size_t n = space_at_front(text)) text.remove_prefix(n);
  while (const size_t n = space_at_back(text)) text.remove_suffix(n);
  return text;
}

std::string excerpt(std::string_view text) {
  constexpr size_t kMostCharacters = 60;
  const std::string whole = repair_utf8(text.substr(0, 4 * kMostCharacters + 4));
  std::string out;
  size_t at = 0;
  for (size_t n = 0; at < whole.size() && n < kMostCharacters; ++n) {
    const CodePoint c = decode_valid(whole.data() + at);
    if (c.value == '\t') {
      out += "\\t";
    } else if (c.value < 0x20 || (c.value >= 0x7f && c.value < 0xa0)) {
      out += '.';  // a message must not steer the terminal
    } else {
      out.append(whole, at, c.length);
    }
    at += c.length;
  }
  return at < whole.size() ? out + "..." : out;
}

std::optional<TextFault> find_fault(const DataUnit& unit) {
  const std::string_view text = unit.text;
  const size_t valid = valid_utf8_prefix(text);
  const size_t at = std::min(valid, text.find('\0'));
  if (at == text.size()) return std::nullopt;
  const int64_t line =
      unit.line + std::count(text.begin(), text.begin() + std::ptrdiff_t(at), '\n');
  const std::string place = fmt::format("byte {} of the file", unit.offset + at);
  if (at < valid) {
    return TextFault{line, "a zero byte at " + place + "; is it UTF-16? Save it as UTF-8"};
  }
  const bool utf16 =
      unit.offset == 0 && (text.starts_with("\xff\xfe") || text.starts_with("\xfe\xff"));
  return TextFault{
      line,
      fmt::format("invalid UTF-8 at {} (0x{:02x}){}", place, unsigned(uint8_t(text[at])),
                  utf16 ? ": this is UTF-16; save the file as UTF-8" : "; save the file as UTF-8")};
}

DataUnits split_units(std::string_view text, DataFormat format, Documents documents) {
  const size_t begin = text.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0;
  DataUnits out;
  if (format != DataFormat::text) {
    out.lines = for_each_line(text, begin, [&](int64_t n, size_t at, std::string_view line) {
      const std::string_view trimmed = trim_text(line);
      if (trimmed.empty()) return;
      if (format == DataFormat::tsv && trimmed.front() == '#') return;
      const bool first = out.units.empty() && out.header == 0;
      if (format == DataFormat::tsv && first && is_tsv_header(trimmed)) {
        log_info("line {}: '{}' is a header row and is left out", n, excerpt(trimmed));
        out.header = n;
        return;
      }
      out.units.push_back({n, at, line});
    });
    return out;
  }
  bool open = false;  // inside a document
  out.lines = for_each_line(text, begin, [&](int64_t n, size_t at, std::string_view line) {
    if (trim_text(line).empty()) {
      open = open && documents == Documents::whole_file;
      return;
    }
    if (!open) out.units.push_back({n, at, {}});
    open = true;
    DataUnit& unit = out.units.back();
    unit.text = text.substr(unit.offset, at + line.size() - unit.offset);
  });
  return out;
}

DataRecord parse_document(std::string_view text) {
  DataRecord record;
  record.text.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const bool line_end = text[i] == '\r' && (i + 1 == text.size() || text[i + 1] == '\n');
    if (!line_end) record.text += text[i];
  }
  return record;
}

}  // namespace nibble
