// SPDX-License-Identifier: MIT
// The one rule for what a data file holds: stretches of text, and the record each of them is. What
// `data` keeps is what `train` and `pretrain` read. What is wrong with a line is thrown without its
// place; the reader adds it. The rules for people are in docs/data.md.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/chat_template.h"

namespace nibble {

enum class DataFormat { automatic, tsv, jsonl, text, json, csv };
enum class DataUse {
  fine_tune,  // one sample a line, scored on the responses
  pretrain,   // documents end to end, cut into windows, scored everywhere
};
// What `automatic` means for this file name (.gz aside); nothing where the name does not tell.
std::optional<DataFormat> format_named(const std::filesystem::path& path, DataUse use);
// Throws UsageError where the name does not tell.
DataFormat format_of(const std::filesystem::path& path, DataUse use);
enum class Documents { paragraphs, whole_file };  // what one document of a text file is

// A stretch of the file that becomes one sample or one document.
struct DataUnit {
  int64_t line;           // where it begins, from 1
  size_t offset;          // of its first byte in the file
  std::string_view text;  // without the last line's end
};
struct DataUnits {
  std::vector<DataUnit> units;
  int64_t lines = 0;   // all of the file's
  int64_t header = 0;  // the line of a header row that was left out; 0: none
};
// Lines without the blank ones (and, in TSV, comments and a header row); of a text file, documents.
// (JSON and CSV: data/read.)
DataUnits split_units(std::string_view text, DataFormat format, Documents documents);

struct DataRecord {
  std::vector<Message> messages;          // a conversation,
  std::vector<std::string> tools;         // the functions it may call, as render() takes them,
  std::string text;                       // or, without messages, plain text
  std::vector<std::string> ignored = {};  // keys that said nothing here: "id", "messages[].name"
};
// Whether a TSV line names its columns ("prompt<TAB>target") instead of being data.
bool is_tsv_header(std::string_view line);
// What is wrong with the text itself: not UTF-8, or a zero byte.
struct TextFault {
  int64_t line;
  std::string what;
};
std::optional<TextFault> find_fault(const DataUnit& unit);
// Throw FormatError or UsageError.
DataRecord parse_tsv_line(std::string_view line);
DataRecord parse_document(std::string_view text);
// What a record must be.
enum class DataWants {
  learnable,  // what DataUse says
  prompt,     // a conversation that ends where the model is to answer
  anything,   // a conversation with or without its last answer, or a text
};
// One JSON object, in any of the shapes of data/read/shapes.h.
DataRecord parse_json_record(std::string_view object, DataUse use, DataWants wants);

// Without white space (Unicode's) at the ends. Any bytes may come.
std::string_view trim_text(std::string_view text);
// The beginning of a text on one line, safe to print.
std::string excerpt(std::string_view text);

}  // namespace nibble
