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

#include "tokenizer/chat_template.h"

namespace nibble {

// {"messages": [...]} and a newline; user and assistant in turn.
std::string chat_line(std::span<const std::string> turns);
std::string chat_line(std::span<const Message> messages);  // without tools
std::string text_line(std::string_view text);              // {"text": ...}

// One sample of a TSV or JSONL file, with its line as it stands there.
struct DataLine {
  std::string line;                // without its end
  std::vector<std::string> asked;  // the user's turns; of a plain text none
  std::vector<std::string> texts;  // every content, for tokenizers and counts
};
// By the file's name: .tsv and .txt are TSV, .jsonl and .ndjson JSONL. What a line may be is the
// rule of train and pretrain (data/lines.h), {"text": ...} included. Throws FormatError with file
// and line, UsageError for another name.
using DataLineUse = std::function<void(DataLine&&)>;
void for_each_data_line(const std::filesystem::path& file, const DataLineUse& use);
std::vector<DataLine> read_data_lines(const std::filesystem::path& file);
bool is_tsv(const std::filesystem::path& file);

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

}  // namespace nibble
