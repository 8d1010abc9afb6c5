// SPDX-License-Identifier: MIT
#include "runlog/run_hashes.h"

#include <chrono>

#include "core/error.h"
#include "core/log.h"
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
  std::shared_ptr<const InputFile> open;
  try {
    open = std::make_shared<const InputFile>(file);
  } catch (const Error&) {  // it is gone, or cannot be read: there is no hash
  }
  add({file.string(), std::move(open)});
}

void BackgroundHashes::add(const fs::path& name, const InputFile& file) {
  add({name.string(), std::make_shared<const InputFile>(file.again())});
}

void BackgroundHashes::add(Task task) {
  const std::lock_guard lock(mutex_);
  if (give_up_) return;
  if (task.file) bytes_asked_ += task.file->size();
  done_.erase(task.name);
  queue_.push_back(std::move(task));
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
    const Task task = std::move(queue_.front());
    queue_.pop_front();
    busy_ = true;
    lock.unlock();
    std::string hash;
    uint64_t last = 0;
    try {
      if (task.file) {
        hash = sha256_file(*task.file, [&](uint64_t done) {
          bytes_done_ += done - last;
          last = done;
          return !give_up_;
        });
      }
      if (task.file && task.file->changed()) {
        log_warning("{} was written to while this run read it", task.name);
        hash.clear();
      }
    } catch (const std::exception&) {  // it cannot be read: there is no hash
    }
    lock.lock();
    done_[task.name] = hash;
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

std::string BackgroundHashes::wait_for(const fs::path& file) {
  Progress progress("hashing " + file.string(), bytes_asked_);
  while (true) {
    if (const auto hash = result(file)) return *hash;
    if (give_up_) return "";
    progress.update(bytes_done_);
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::milliseconds(200));
  }
}

void BackgroundHashes::wait_at_most(double seconds) {
  if (idle_within(seconds)) return;
  const std::lock_guard lock(mutex_);
  give_up_ = true;
  queue_.clear();
}

}  // namespace nibble
