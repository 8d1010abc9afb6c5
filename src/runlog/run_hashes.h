// SPDX-License-Identifier: MIT
// Hashes files in a thread of its own, while the run that reads or wrote them goes on.
#pragma once
#include <atomic>
#include <condition_variable>
#include <deque>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

namespace nibble {

class BackgroundHashes {
 public:
  BackgroundHashes() = default;
  ~BackgroundHashes();  // gives up what is not done
  BackgroundHashes(const BackgroundHashes&) = delete;
  BackgroundHashes& operator=(const BackgroundHashes&) = delete;

  void add(const std::filesystem::path& file);  // again for the same file: it has changed
  // Of a file whose hash is ready; "" for one that could not be read.
  std::optional<std::string> result(const std::filesystem::path& file) const;
  // Until all are done; shows progress where that takes long.
  void wait();
  // The same for `seconds` at most; then what is not done is given up.
  void wait_at_most(double seconds);

 private:
  void work();
  bool idle_within(double seconds);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::string> queue_;
  std::map<std::string, std::string> done_;
  bool busy_ = false, closing_ = false;
  std::atomic<bool> give_up_{false};
  std::atomic<uint64_t> bytes_done_{0}, bytes_asked_{0};
  std::thread thread_;
};

}  // namespace nibble
