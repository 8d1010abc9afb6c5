// SPDX-License-Identifier: MIT
// Lines of training files: writing ours, reading anybody's.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/read/data_reader.h"
#include "tokenizer/chat_template.h"

namespace nibble {

// {"messages": [...]} and a newline; user and assistant in turn.
std::string chat_line(std::span<const std::string> turns);
std::string chat_line(std::span<const Message> messages);  // without tools
std::string text_line(std::string_view text);              // {"text": ...}

// One sample of a data file, with its line as it stands there; of JSON and CSV, as a line of JSONL.
struct DataLine {
  std::string line;                // without its end
  std::vector<std::string> asked;  // the user's turns; of a plain text none
  std::vector<std::string> texts;  // every content, for tokenizers and counts
};
// A file, or a folder of files, by their names (data/read/data_files.h). What a line may be is the
// rule of train and pretrain, {"text": ...} included, and .txt is TSV. Keys that say nothing are
// counted, which is logged, or refused. Throws FormatError with file and line, UsageError for a
// name that does not tell the format.
using DataLineUse = std::function<void(DataLine&&)>;
void for_each_data_line(const std::filesystem::path& file, const DataLineUse& use,
                        ExtraKeys extra = ExtraKeys::count);
std::vector<DataLine> read_data_lines(const std::filesystem::path& file,
                                      ExtraKeys extra = ExtraKeys::count);
// What the lines of a file, or of all files of a folder, are written as: TSV, or else JSONL.
enum class LineFormat { tsv, jsonl };
LineFormat lines_in(const std::filesystem::path& file);
// The same of a file to be written, which is a plain .tsv, .txt, .jsonl or .ndjson.
LineFormat lines_for(const std::filesystem::path& file);

// One text of turns: what a prompt of several turns is compared by.
std::string joined(std::span<const std::string> turns);

enum class KeyRule {
  strict,
  // As the shipped probes were drawn: a space stays beside Chinese when it follows ASCII.
  drawn,
};
constexpr char32_t kFirstCjk = 0x2e80;  // from here on scripts without spaces, all but a few
// Letters, digits and the signs + - # alone, in lower case: what two texts have in common beside
// punctuation and quotation marks. A space stays only between two words (Chinese has none); line
// ends stay.
std::string normalised(std::string_view text, KeyRule rule = KeyRule::strict);

// Throws UsageError when the text, which `what` names, cannot be an answer in such a file: it is
// empty or not UTF-8, or TSV would not give it back as it is.
enum class AnswerFile { tsv, other };
void check_answer(std::string_view text, const char* what, AnswerFile file);

// Throws UsageError when the file exists: sets are never overwritten.
void refuse_existing(const std::filesystem::path& file);
// Writes it (directories are made) under its name only when whole.
void write_new_file(const std::filesystem::path& file, std::string_view text);
// Both or, after an error, none of them.
void write_new_files(const std::filesystem::path& first, std::string_view first_text,
                     const std::filesystem::path& second, std::string_view second_text);

}  // namespace nibble
