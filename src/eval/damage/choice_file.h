// SPDX-License-Identifier: MIT
// The questions of check --choices (docs/damage.md): JSON lines, each a question with choices and
// the number of the right one, or with the words that must follow.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace nibble {

struct ChoiceQuestion {
  std::string id;
  std::string question;
  std::vector<std::string> choices;  // each goes on where the question ends, as it stands
  int64_t answer = 0;                // of the choices
};

enum class ChoiceForm {
  choices,    // the right one of several
  last_word,  // one continuation, which must be what the model would say itself
};

struct ChoiceSet {
  std::string name;
  ChoiceForm form = ChoiceForm::choices;
  std::vector<ChoiceQuestion> questions;
};

// Throws FormatError that names the file, the line and the key.
ChoiceSet parse_choices(std::string_view text, const std::string& name);

struct ChoiceFile {
  ChoiceSet set;
  std::string hash;  // SHA-256 of the file's bytes, hexadecimal
};
// The first `most` questions; 0: all. All lines are read and must be sound.
ChoiceFile read_choices(const std::filesystem::path& file, int64_t most = 0);

}  // namespace nibble
