// SPDX-License-Identifier: MIT
#include "data/read/csv.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "core/error.h"
#include "data/read/shapes.h"

namespace nibble {

DataUnits split_csv(std::string_view text, size_t begin) {
  DataUnits out;
  int64_t line = 1;
  while (begin < text.size()) {
    const int64_t first = line;
    int64_t opened = 0;  // the line of the mark that is not closed yet
    size_t end = begin;
    for (; end < text.size(); ++end) {
      const char c = text[end];
      // "" inside a field closes and opens again, which comes to the same.
      if (c == '"') opened = opened ? 0 : line;
      if (c != '\n') continue;
      ++line;
      if (!opened) break;
    }
    if (opened) {
      throw_format(
          "line {}: a quotation mark that is not closed before the file ends; inside a quoted "
          "field a mark is written twice",
          opened);
    }
    const std::string_view row = text.substr(begin, end - begin);
    if (!trim_text(row).empty()) out.units.push_back({first, begin, row});
    if (end == text.size()) ++line;  // the last row without its end
    begin = end + 1;
  }
  out.lines = line - 1;
  return out;
}

std::vector<std::string> csv_fields(std::string_view row) {
  if (row.ends_with('\r')) row.remove_suffix(1);
  std::vector<std::string> fields(1);
  size_t i = 0;
  for (;;) {
    std::string& field = fields.back();
    if (i < row.size() && row[i] == '"') {
      for (++i;; ++i) {
        if (i >= row.size())
          throw_format("field {}: its quotation marks do not close", fields.size());
        if (row[i] == '"') {
          if (i + 1 >= row.size() || row[i + 1] != '"') break;
          ++i;
        }
        field += row[i];
      }
      ++i;
      if (i < row.size() && row[i] != ',') {
        throw_format("field {}: '{}' after its closing quotation mark, where a comma is expected",
                     fields.size(), excerpt(row.substr(i)));
      }
    } else {
      while (i < row.size() && row[i] != ',') {
        if (row[i] == '"') {
          throw_format(
              "field {}: a quotation mark inside a field that does not begin with one; put the "
              "whole field in marks and write \"\" for it",
              fields.size());
        }
        field += row[i++];
      }
    }
    if (i >= row.size()) return fields;
    ++i;  // the comma
    fields.emplace_back();
  }
}

std::vector<std::string> csv_columns(std::string_view row) {
  std::vector<std::string> columns = csv_fields(row);
  bool any = false;
  std::set<std::string> seen;
  for (std::string& c : columns) {
    c = std::string(trim_text(c));
    std::transform(c.begin(), c.end(), c.begin(),
                   [](char x) { return x >= 'A' && x <= 'Z' ? char(x + 32) : x; });
    any = any || begins_a_record(c);
    if (!c.empty() && !seen.insert(c).second) {
      throw_format("the header row names the column \"{}\" twice", excerpt(c));
    }
  }
  if (any) return columns;
  const char* hint = "";
  if (columns.size() == 1 && row.find(';') != row.npos) {
    hint = "; it is separated by semicolons: save it with commas";
  } else if (columns.size() == 1 && row.find('\t') != row.npos) {
    hint = "; it is separated by tabs: name it .tsv";
  }
  throw_format(
      "the first row of a CSV file names its columns, and this one has none that is known: '{}'. "
      "Expected are prompt,completion or instruction,input,output or question,answer or messages "
      "or "
      "text{}",
      excerpt(row), hint);
}

}  // namespace nibble
