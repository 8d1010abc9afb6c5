// SPDX-License-Identifier: MIT
#include "apps/editor/input_history.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "apps/options/user_defaults.h"
#include "core/durable/directories.h"
#include "core/error.h"
#include "core/file.h"
#include "core/log.h"
#include "tokenizer/unicode.h"

namespace nibble {
namespace {

constexpr mode_t kOwnerOnly = 0600;

std::string spelled_entry(const std::string& entry) {
  std::string line;
  for (const char c : entry) {
    if (c == '\n') {
      line += "\\n";
    } else if (c == '\\') {
      line += "\\\\";
    } else {
      line += c;
    }
  }
  return line + "\n";
}

std::string read_entry(std::string_view line) {
  std::string entry;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '\\' && i + 1 < line.size()) {
      ++i;
      entry += line[i] == 'n' ? '\n' : line[i];
    } else {
      entry += line[i];
    }
  }
  return repair_utf8(entry);
}

// Makes the file where there is none; nobody but the owner may read it, now or later.
void keep_private(const std::filesystem::path& file) {
  make_directories(file.parent_path());
  const int fd = ::open(file.c_str(), O_RDONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK, kOwnerOnly);
  struct stat st {};
  if (fd < 0) throw_format("cannot open {}: {}", file.string(), std::strerror(errno));
  const bool regular = ::fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
  if (regular && (st.st_mode & 0077) != 0) ::fchmod(fd, kOwnerOnly);
  ::close(fd);
  if (!regular) throw_format("{} is not a regular file", file.string());
}

}  // namespace

InputHistory::InputHistory(std::filesystem::path file) : file_(std::move(file)) {
  try {
    if (!file_.empty()) read();
  } catch (const Error& e) {
    give_up(e.what());
  }
}

void InputHistory::give_up(const std::string& why) {
  log_warning(
      "what is typed will not be remembered: {}; --input-history or NIBBLE_HISTORY names another "
      "file, or off",
      why);
  file_.clear();
}

void InputHistory::read() {
  keep_private(file_);
  const std::string text = read_text_file(file_, uint64_t(64) << 20);
  std::string_view rest = text;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    if (end > 0) entries_.push_back(read_entry(rest.substr(0, end)));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  const size_t all = entries_.size();
  shorten();
  if (entries_.size() == all) return;
  std::string kept;
  for (const std::string& entry : entries_) kept += spelled_entry(entry);
  replace_file(file_, kept);  // keeps the mode
}

void InputHistory::shorten() {
  size_t bytes = 0, keep = 0;
  while (keep < entries_.size() && keep < kMostEntries) {
    bytes += entries_[entries_.size() - keep - 1].size();
    if (bytes > kMostBytes && keep > 0) break;
    ++keep;
  }
  entries_.erase(entries_.begin(), entries_.end() - std::ptrdiff_t(keep));
}

void InputHistory::add(const std::string& entry) {
  if (entry.empty() || (!entries_.empty() && entries_.back() == entry)) return;
  entries_.push_back(entry);
  shorten();
  try {
    // Appended, so that two sittings at once both keep theirs.
    if (!file_.empty()) append_file(file_, spelled_entry(entry));
  } catch (const Error& e) {
    give_up(e.what());
  }
}

std::filesystem::path default_history_file() {
  const std::filesystem::path state = user_state_folder();
  return state.empty() ? state : state / "chat_history";
}

}  // namespace nibble
