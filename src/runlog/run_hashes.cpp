// SPDX-License-Identifier: MIT
#include "runlog/run_hashes.h"

#include <chrono>

#include "core/error.h"
#include "core/progress.h"
#include "core/sha256.h"

namespace nibble {

namespace fs = std::filesystem;

BackgroundHashes::~BackgroundHashes() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    give_up_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void BackgroundHashes::add(const fs::path& file) {
  std::error_code ec;
  const uint64_t bytes = fs::file_size(file, ec);
  const std::lock_guard lock(mutex_);
  if (give_up_) return;
  if (!ec) bytes_asked_ += bytes;
  done_.erase(file.string());
  queue_.push_back(file.string());
  if (!thread_.joinable()) thread_ = std::thread([this] { work(); });
  changed_.notify_all();
}

std::optional<std::string> BackgroundHashes::result(const fs::path& file) const {
  const std::lock_guard lock(mutex_);
  const auto it = done_.find(file.string());
  return it == done_.end() ? std::nullopt : std::optional(it->second);
}

void BackgroundHashes::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return closing_ || !queue_.empty(); });
    if (closing_) return;
    const std::string file = std::move(queue_.front());
    queue_.pop_front();
    busy_ = true;
    lock.unlock();
    std::string hash;
    uint64_t last = 0;
    try {
      hash = sha256_file(file, [&](uint64_t done) {
        bytes_done_ += done - last;
        last = done;
        return !give_up_;
      });
    } catch (const std::exception&) {  // it is gone, or cannot be read: there is no hash
    }
    lock.lock();
    done_[file] = hash;
    busy_ = false;
    changed_.notify_all();
  }
}

bool BackgroundHashes::idle_within(double seconds) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, std::chrono::duration<double>(seconds),
                           [&] { return queue_.empty() && !busy_; });
}

void BackgroundHashes::wait() {
  Progress progress("hashing the files of this run", bytes_asked_);
  while (!idle_within(0.2)) progress.update(bytes_done_);
}

void BackgroundHashes::wait_at_most(double seconds) {
  if (idle_within(seconds)) return;
  const std::lock_guard lock(mutex_);
  give_up_ = true;
  queue_.clear();
}

}  // namespace nibble
