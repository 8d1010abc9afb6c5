// SPDX-License-Identifier: MIT
// What a person writes down about a run: why it was started, what came of it, what its weights are
// good for. A file of lines in the run's folder, which a run that goes on does not touch.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace nibble {

constexpr const char* kNotesFile = "notes.jsonl";

enum class NoteKind {
  remark,
  good_for,  // what the exported weights are good for: the inventory's column
};
struct RunNote {
  std::string time_utc, text;
  NoteKind kind = NoteKind::remark;
};

// Throws FormatError, and UsageError for a note without text.
void add_note(const std::filesystem::path& folder, const std::string& text,
              NoteKind kind = NoteKind::remark);
// The oldest first. What cannot be read is left out with a warning.
std::vector<RunNote> read_notes(const std::filesystem::path& folder);

}  // namespace nibble
