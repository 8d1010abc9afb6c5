// SPDX-License-Identifier: MIT
// A run's curves for TensorBoard, written as the run goes on. Each record is written in one piece
// and is with the system at once: whatever ends the program, what is there can be read.
#pragma once
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace nibble {

// Throws UsageError where the folder has curves already and the run is not one that goes on with
// them: two runs in one folder would be drawn as one.
void check_tensorboard_folder(const std::filesystem::path& folder, bool goes_on);

class EventFile {
 public:
  // A new file in the folder, which is made; its name comes after those that are there. Throws
  // FormatError.
  explicit EventFile(const std::filesystem::path& folder);
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  using Curves = std::vector<std::pair<std::string, double>>;  // tag, value
  // Values of a step; those that are not numbers are left out. A step that is not after the last
  // one of `step` begins the curves anew there, as after a resume or a way back.
  void step(int64_t step, const Curves& values);
  void beside(int64_t step, const Curves& values);  // what belongs to a step that was taken
  void flush();                                     // to disk

 private:
  void append(const std::string& event);

  std::filesystem::path path_;
  int fd_ = -1;
  int64_t last_step_ = -1;
  uint64_t whole_ = 0;  // bytes of whole records
  std::chrono::steady_clock::time_point flushed_;
};

}  // namespace nibble
