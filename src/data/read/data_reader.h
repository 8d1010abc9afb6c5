// SPDX-License-Identifier: MIT
// A data file's text, whatever its format, as records. Reading one is independent of the others and
// may be done by many threads.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "data/lines.h"

namespace nibble {

enum class ExtraKeys { count, refuse };  // members and columns that say nothing here
struct ReadRules {
  DataFormat format = DataFormat::jsonl;  // not automatic
  DataUse use = DataUse::fine_tune;
  Documents documents = Documents::paragraphs;
  ExtraKeys extra = ExtraKeys::count;
};

class DataReader {
 public:
  // `text` must outlive the reader. Throws FormatError "name:line: ..." for a file that cannot be
  // taken apart: JSON that is cut off, CSV without a header row.
  DataReader(std::string_view text, const std::string& name, const ReadRules& rules);

  const std::vector<DataUnit>& units() const { return split_.units; }
  int64_t lines() const { return split_.lines; }

  struct Result {
    DataRecord record;
    std::string error;  // what is wrong with the unit; empty: nothing
    int64_t line = 0;   // and where
  };
  Result read(size_t unit, DataWants wants = DataWants::learnable) const;
  // The same as it stands in a file of lines (TSV or JSONL) that holds it, without a line end.
  std::string line_of(size_t unit) const;

 private:
  DataRecord parse(size_t unit, DataWants wants) const;
  std::string csv_object(const DataUnit& unit) const;  // as JSON

  ReadRules rules_;
  DataUnits split_;
  std::vector<std::string> columns_;  // of CSV
};

}  // namespace nibble
