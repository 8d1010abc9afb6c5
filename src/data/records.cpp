// SPDX-License-Identifier: MIT
#include "data/records.h"

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/file.h"
#include "tokenizer/unicode.h"

namespace nibble {
namespace {

using nlohmann::ordered_json;

DataLine parse_tsv(std::string line, const std::string& where) {
  const size_t tab = line.find('\t');
  if (tab == line.npos || tab == 0 || tab + 1 == line.size()) {
    throw_format("{}: expected prompt<TAB>target", where);
  }
  DataLine d;
  d.prompt = line.substr(0, tab);
  d.texts = {d.prompt, line.substr(tab + 1)};
  d.line = std::move(line);
  return d;
}

DataLine parse_jsonl(std::string line, const std::string& where) {
  ordered_json j;
  try {
    j = ordered_json::parse(line);
  } catch (const ordered_json::exception& e) {
    throw_format("{}: not valid JSON: {}", where, e.what());
  }
  DataLine d;
  const auto text = [&](const ordered_json& o, const char* key) {
    if (!o.is_object() || !o.contains(key) || !o.at(key).is_string()) {
      throw_format("{}: expected the string \"{}\"", where, key);
    }
    return o.at(key).get<std::string>();
  };
  if (j.is_object() && j.contains("messages") && j.at("messages").is_array()) {
    for (const ordered_json& m : j.at("messages")) {
      d.texts.push_back(text(m, "content"));
      if (text(m, "role") != "user") continue;
      d.prompt += (d.prompt.empty() ? "" : "\n") + d.texts.back();
    }
  } else if (j.is_object() && j.contains("prompt")) {
    d.prompt = text(j, "prompt");
    d.texts = {d.prompt, text(j, j.contains("target") ? "target" : "response")};
  } else {
    d.texts = {text(j, "text")};
  }
  d.line = std::move(line);
  return d;
}

}  // namespace

std::string chat_line(std::span<const std::string> turns) {
  ordered_json list = ordered_json::array();
  for (size_t i = 0; i < turns.size(); ++i) {
    list.push_back({{"role", i % 2 == 0 ? "user" : "assistant"}, {"content", turns[i]}});
  }
  return ordered_json{{"messages", list}}.dump() + "\n";
}

std::string text_line(std::string_view text) { return ordered_json{{"text", text}}.dump() + "\n"; }

bool is_tsv(const std::filesystem::path& file) {
  const std::string e = file.extension().string();
  if (e == ".tsv" || e == ".txt") return true;
  if (e == ".jsonl" || e == ".ndjson") return false;
  throw_usage("{}: the name does not tell the format; use .tsv or .jsonl", file.string());
}

std::vector<DataLine> read_data_lines(const std::filesystem::path& file) {
  const bool tsv = is_tsv(file);
  std::string text = read_text_file(file, 16ull << 30);
  if (text.starts_with("\xef\xbb\xbf")) text.erase(0, 3);
  std::vector<DataLine> out;
  int64_t number = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string line = text.substr(at, end - at);
    at = end + 1;
    ++number;
    if (line.ends_with('\r')) line.pop_back();
    if (line.find_first_not_of(" \t") == line.npos || (tsv && line.starts_with('#'))) continue;
    const std::string where = fmt::format("{}:{}", file.string(), number);
    if (valid_utf8_prefix(line) != line.size()) throw_format("{}: not UTF-8", where);
    out.push_back(tsv ? parse_tsv(std::move(line), where) : parse_jsonl(std::move(line), where));
  }
  return out;
}

std::string normalised(std::string_view text) {
  const std::string repaired = repair_utf8(text);
  std::string storage, out;
  const std::string_view normal = normalize_nfc(repaired, storage);
  const UnicodeTable& table = UnicodeTable::instance();
  for (size_t i = 0; i < normal.size();) {
    const CodePoint c = decode_valid(normal.data() + i);
    const CharClass k = table.char_class(c.value);
    if (c.value == '\n') {  // turns stay apart
      if (!out.empty() && out.back() == ' ') out.pop_back();
      out += '\n';
    } else if (k == CharClass::letter || k == CharClass::number) {
      append_utf8(out, c.value >= 'A' && c.value <= 'Z' ? c.value + 32 : c.value);
    } else if (k == CharClass::space && !out.empty() && uint8_t(out.back()) < 0x80 &&
               out.back() != ' ' && out.back() != '\n') {
      out += ' ';  // words stay apart
    } else if (std::string_view("+-#").find(char(c.value)) != std::string_view::npos &&
               c.value < 0x80) {
      out += char(c.value);  // 3+2 is not 3-2
    }
    i += c.length;
  }
  while (out.ends_with(' ')) out.pop_back();
  return out;
}

void refuse_existing(const std::filesystem::path& file) {
  if (std::filesystem::exists(file)) {
    throw_usage("{} exists, and data sets are never overwritten: choose another name",
                file.string());
  }
}

void write_new_file(const std::filesystem::path& file, std::string_view text) {
  refuse_existing(file);
  if (file.has_parent_path()) std::filesystem::create_directories(file.parent_path());
  write_text_file_atomic(file, text);
}

}  // namespace nibble
