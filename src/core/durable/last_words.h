// SPDX-License-Identifier: MIT
// What a file is to say when a signal ends the program: prepared before, since a signal handler
// may do almost nothing.
#pragma once
#include <filesystem>
#include <string_view>

namespace nibble {

class LastWords {
 public:
  explicit LastWords(const std::filesystem::path& file);
  ~LastWords();  // nothing is left to say
  LastWords(const LastWords&) = delete;
  LastWords& operator=(const LastWords&) = delete;
  // At most 16 KiB; longer ones are not said.
  void set(std::string_view text);
  void clear();
  // At once, those set last, also after clear(). Takes no memory.
  void say() noexcept;

 private:
  int slot_ = -1;  // -1: none was free
};

// Replaces every such file by its last words. Safe to call in a signal handler; for the end of the
// process only: afterwards nothing can be set any more. Whoever calls it while another thread does
// waits for that one's end.
void write_last_words() noexcept;

}  // namespace nibble
