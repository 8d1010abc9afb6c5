// SPDX-License-Identifier: MIT
// Rows of a lesson from a file that was dropped, and as the files a training reads.
#pragma once
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "serve/page/lesson.h"
#include "tokenizer/chat_template.h"

namespace nibble {

// {"rows": [...], "problems": ["line 3: ..."]} of a file's text, read by the rules of `train`; its
// name tells the format. Throws ApiError for a name that does not.
nlohmann::ordered_json rows_of_file(const std::string& name, const std::string& text);

// rows.jsonl and, where prompts are kept, keep.jsonl of a lesson's folder.
void write_lesson_rows(const Lesson& lesson, const std::filesystem::path& folder);

// Of each group: every gate asks them all.
constexpr size_t kMostProbes = 40;
// probes.json: what is taught must be said; what is kept, and what is neither, is asked before and
// after, to see whether the model still says the same.
void write_lesson_probes(const Lesson& lesson, const std::vector<std::string>& others,
                         const std::filesystem::path& folder);

// Tokens of the longest row, of all of them, and of the longest prompt that is kept, as the model
// reads them.
struct RowTokens {
  int64_t longest = 0, all = 0, longest_prompt = 0;
};
RowTokens row_tokens(const Lesson& lesson, const Tokenizer& tokenizer, const ChatTemplate& style);

}  // namespace nibble
