// SPDX-License-Identifier: MIT
// The steps between a data file and a Dataset: stretches of text, records, tokens. Private to the
// dataset_*.cpp files. What is wrong with a line is thrown without its place; dataset.cpp adds it.
#pragma once
#include <nlohmann/json.hpp>

#include "train/dataset.h"

namespace nibble {

// A stretch of the file that becomes one sample or one document.
struct DataUnit {
  int64_t line;           // where it begins, from 1
  size_t offset;          // of its first byte in the file
  std::string_view text;  // without the last line's end
};
struct DataUnits {
  std::vector<DataUnit> units;
  int64_t lines = 0;  // all of the file's
};
// Lines without the blank ones (and, in TSV, comments); of a text file, documents.
DataUnits split_units(std::string_view text, DataFormat format, Documents documents);

struct DataRecord {
  std::vector<Message> messages;              // a conversation,
  std::vector<nlohmann::ordered_json> tools;  // the functions it may call,
  std::string text;                           // or, without messages, plain text
};
enum class LinePlace { first, later };  // a header can only stand in the first data line
// What is wrong with the text itself: not UTF-8, or a zero byte.
struct TextFault {
  int64_t line;
  std::string what;
};
std::optional<TextFault> find_fault(const DataUnit& unit);
// Throw FormatError or UsageError.
DataRecord parse_tsv_line(std::string_view line, LinePlace place);
DataRecord parse_jsonl_line(std::string_view line, DataUse use);
DataRecord parse_document(std::string_view text);

struct DataTokens {
  std::vector<int32_t> ids;
  std::vector<uint8_t> flags;
  int64_t last_response = 0;  // scored tokens of the last assistant turn
};
void require_chat_tokens(const Tokenizer& tokenizer);  // throws UsageError
DataTokens encode_record(const DataRecord& record, const Tokenizer& tokenizer,
                         const DatasetOptions& options);

// Without white space (Unicode's) at the ends. Any bytes may come.
std::string_view trim_text(std::string_view text);
// The beginning of a text on one line, safe to print.
std::string excerpt(std::string_view text);

}  // namespace nibble
