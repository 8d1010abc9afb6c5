// SPDX-License-Identifier: MIT
// Hashes files in a thread of its own, while the run that reads or wrote them goes on.
#pragma once
#include <atomic>
#include <condition_variable>
#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "core/file.h"

namespace nibble {

class BackgroundHashes {
 public:
  BackgroundHashes() = default;
  ~BackgroundHashes();  // gives up what is not done
  BackgroundHashes(const BackgroundHashes&) = delete;
  BackgroundHashes& operator=(const BackgroundHashes&) = delete;

  void add(const std::filesystem::path& file);  // again for the same file: it has changed
  // Of the bytes of a file that is open, whatever has its name by then; result() is by `name`.
  void add(const std::filesystem::path& name, const InputFile& file);
  // Of a file whose hash is ready; "" for one that could not be read.
  std::optional<std::string> result(const std::filesystem::path& file) const;
  // Until all are done; shows progress where that takes long.
  void wait();
  // Of one file that was added.
  std::string wait_for(const std::filesystem::path& file);
  // The same for `seconds` at most; then what is not done is given up.
  void wait_at_most(double seconds);

 private:
  void work();
  bool idle_within(double seconds);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  struct Task {
    std::string name;
    std::shared_ptr<const InputFile> file;  // null: it could not be opened
  };
  void add(Task task);
  std::deque<Task> queue_;
  std::map<std::string, std::string> done_;
  bool busy_ = false, closing_ = false;
  std::atomic<bool> give_up_{false};
  std::atomic<uint64_t> bytes_done_{0}, bytes_asked_{0};
  std::thread thread_;
};

}  // namespace nibble
