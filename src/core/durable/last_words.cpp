// SPDX-License-Identifier: MIT
#include "core/durable/last_words.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <string>

namespace nibble {
namespace {

constexpr int kSlots = 8;
constexpr size_t kMostBytes = 16 << 10;

// Two texts in turns: the one that counts is never being written.
struct Words {
  std::atomic<bool> claimed{false};
  std::atomic<int> said{-1};  // which text counts; -1: none
  std::atomic<int> last{-1};  // which was set last
  char file[1024], temporary[1100];
  char text[2][kMostBytes];
  size_t size[2];
};
Words g_words[kSlots];
std::atomic<bool> g_over{false};

// One writer at a time, whom no signal interrupts: whoever comes to end the process meanwhile, from
// another thread or a handler, waits until the words are on the disk. All calls in here are ones
// that a handler may make.
class OneWriter {
 public:
  OneWriter() noexcept {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
    while (writing_.test_and_set(std::memory_order_acquire)) ::poll(nullptr, 0, 1);
  }
  ~OneWriter() {
    writing_.clear(std::memory_order_release);
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  OneWriter(const OneWriter&) = delete;
  OneWriter& operator=(const OneWriter&) = delete;

 private:
  static std::atomic_flag writing_;
  sigset_t before_;
};
std::atomic_flag OneWriter::writing_ = ATOMIC_FLAG_INIT;

void write_text(const Words& w, int which) noexcept {
  ::unlink(w.temporary);
  const int fd = ::open(w.temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
  if (fd < 0) return;
  const bool whole = ::write(fd, w.text[which], w.size[which]) == ssize_t(w.size[which]);
  const bool safe = ::fsync(fd) == 0;
  ::close(fd);
  if (!whole || !safe || ::rename(w.temporary, w.file) != 0) ::unlink(w.temporary);
}

}  // namespace

LastWords::LastWords(const std::filesystem::path& file) {
  const std::string path = file.string();
  if (path.size() >= sizeof Words::file) return;
  for (int i = 0; i < kSlots && slot_ < 0; ++i) {
    if (!g_words[i].claimed.exchange(true)) slot_ = i;
  }
  if (slot_ < 0) return;
  std::strcpy(g_words[slot_].file, path.c_str());
  std::strcpy(g_words[slot_].temporary, (path + ".0123456789abcdef.nibble-tmp").c_str());
}

LastWords::~LastWords() {
  if (slot_ < 0) return;
  clear();
  g_words[slot_].last = -1;
  g_words[slot_].claimed = false;
}

void LastWords::clear() {
  if (slot_ >= 0) g_words[slot_].said = -1;
}

void LastWords::set(std::string_view text) {
  if (slot_ < 0 || g_over || text.size() > kMostBytes) return;
  Words& w = g_words[slot_];
  const int next = w.last == 0 ? 1 : 0;
  std::memcpy(w.text[next], text.data(), text.size());
  w.size[next] = text.size();
  w.said = w.last = next;
}

void LastWords::say() noexcept {
  const OneWriter alone;
  const int which = slot_ < 0 || g_over ? -1 : g_words[slot_].last.exchange(-1);
  clear();
  if (which >= 0) write_text(g_words[slot_], which);
}

void write_last_words() noexcept {
  const OneWriter alone;
  g_over = true;
  for (Words& w : g_words) {
    const int said = w.said.exchange(-1);
    if (said >= 0) write_text(w, said);
  }
}

}  // namespace nibble
