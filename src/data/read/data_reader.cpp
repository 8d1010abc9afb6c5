// SPDX-License-Identifier: MIT
#include "data/read/data_reader.h"

#include <algorithm>

#include "core/error.h"
#include "core/json.h"
#include "data/read/csv.h"
#include "data/read/json_values.h"

namespace nibble {
namespace {

constexpr std::string_view kMark = "\xef\xbb\xbf";  // of the byte order

}  // namespace

DataReader::DataReader(std::string_view text, const std::string& name, const ReadRules& rules)
    : rules_(rules) {
  const size_t begin = text.starts_with(kMark) ? kMark.size() : 0;
  switch (rules.format) {
    case DataFormat::tsv:
    case DataFormat::jsonl:
    case DataFormat::text: split_ = split_units(text, rules.format, rules.documents); return;
    case DataFormat::json:
    case DataFormat::csv: break;
    case DataFormat::automatic: throw_internal("the data format was not settled");
  }
  try {
    const bool csv = rules.format == DataFormat::csv;
    split_ = csv ? split_csv(text, begin) : split_json(text, begin);
    if (!csv || split_.units.empty()) return;
    if (const auto fault = find_fault(split_.units.front())) throw_format("{}", fault->what);
    columns_ = csv_columns(split_.units.front().text);
    split_.units.erase(split_.units.begin());
  } catch (const FormatError& e) {
    throw_format("{}: {}", name, e.what());
  }
}

std::string DataReader::csv_object(const DataUnit& unit) const {
  const std::vector<std::string> fields = csv_fields(unit.text);
  if (fields.size() != columns_.size()) {
    throw_format(
        "{} fields, where the header row names {} columns: '{}'; a text with a comma or a "
        "line end stands in quotation marks",
        fields.size(), columns_.size(), excerpt(unit.text));
  }
  nlohmann::ordered_json j = nlohmann::ordered_json::object();
  for (size_t i = 0; i < fields.size(); ++i) {
    if (!columns_[i].empty() || !fields[i].empty()) j[columns_[i]] = fields[i];
  }
  return j.dump();
}

std::string DataReader::line_of(size_t i) const {
  const DataUnit& unit = split_.units[i];
  if (rules_.format == DataFormat::csv) return csv_object(unit);
  if (rules_.format == DataFormat::json) {
    return parse_json<nlohmann::ordered_json>(unit.text).dump();  // on one line
  }
  std::string line(unit.text);
  if (line.ends_with('\r')) line.pop_back();
  return line;
}

DataRecord DataReader::parse(size_t i, DataWants wants) const {
  const DataUnit& unit = split_.units[i];
  switch (rules_.format) {
    case DataFormat::tsv: return parse_tsv_line(unit.text);
    case DataFormat::text: return parse_document(unit.text);
    case DataFormat::csv: return parse_json_record(csv_object(unit), rules_.use, wants);
    case DataFormat::json:
    case DataFormat::jsonl: break;
    case DataFormat::automatic: throw_internal("the data format was not settled");
  }
  return parse_json_record(unit.text, rules_.use, wants);
}

DataReader::Result DataReader::read(size_t i, DataWants wants) const {
  Result out;
  const DataUnit& unit = split_.units[i];
  out.line = unit.line;
  if (std::optional<TextFault> fault = find_fault(unit)) {
    out.error = std::move(fault->what);
    out.line = fault->line;
    return out;
  }
  try {
    out.record = parse(i, wants);
    if (rules_.extra == ExtraKeys::refuse && !out.record.ignored.empty()) {
      throw_format(
          "\"{}\" says nothing here, and --strict-data asks for nothing to be left out: remove it",
          out.record.ignored.front());
    }
  } catch (const FormatError& e) {
    out.error = e.what();
  } catch (const UsageError& e) {
    out.error = e.what();
  }
  return out;
}

}  // namespace nibble
