// SPDX-License-Identifier: MIT
// Lines of training files: writing ours, reading anybody's.
#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace nibble {

// {"messages": [...]} and a newline; user and assistant in turn.
std::string chat_line(std::span<const std::string> turns);
std::string text_line(std::string_view text);  // {"text": ...}

// One sample of a TSV or JSONL file, with its line as it stands there.
struct DataLine {
  std::string line;                // without its end
  std::string prompt;              // all user turns, joined by newlines; of a plain text: ""
  std::vector<std::string> texts;  // every content, for tokenizers and counts
};
// By the file's name: .tsv and .txt are TSV, .jsonl and .ndjson JSONL. Blank lines and comments are
// left out. Throws FormatError with file and line, UsageError for another name.
std::vector<DataLine> read_data_lines(const std::filesystem::path& file);
bool is_tsv(const std::filesystem::path& file);

// Letters and digits alone, in lower case: what two texts have in common beside punctuation.
std::string normalised(std::string_view text);

// Throws UsageError when the file exists: sets are never overwritten.
void refuse_existing(const std::filesystem::path& file);
// Writes it (directories are made) under its name only when whole.
void write_new_file(const std::filesystem::path& file, std::string_view text);

}  // namespace nibble
