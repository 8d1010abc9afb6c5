// SPDX-License-Identifier: MIT
// What was typed before, in this sitting and in earlier ones: a file that only its owner may read,
// one entry a line, with line ends and backslashes spelled \n and \\.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace nibble {

class InputHistory {
 public:
  static constexpr size_t kMostEntries = 1000, kMostBytes = size_t(1) << 20;  // the newest of them

  // An empty path: of this sitting only. A file that cannot be read or written is warned of once
  // and then left alone: nobody wants to lose a conversation for its history.
  explicit InputHistory(std::filesystem::path file = {});

  void add(const std::string& entry);  // nothing where it is the newest already
  const std::vector<std::string>& entries() const { return entries_; }  // the oldest first

 private:
  void read();
  void shorten();
  void give_up(const std::string& why);

  std::filesystem::path file_;
  std::vector<std::string> entries_;
};

// $XDG_STATE_HOME/nibble/chat_history, or ~/.local/state/nibble/chat_history; "" without a home.
std::filesystem::path default_history_file();

}  // namespace nibble
