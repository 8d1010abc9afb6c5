// SPDX-License-Identifier: MIT
// metrics.jsonl of a run: one line a step, and one for each held-out loss. A line is written in one
// piece; a torn last one, after a crash, is ignored by the reader.
#pragma once
#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace nibble {

constexpr double kNoValue = std::numeric_limits<double>::quiet_NaN();  // null in JSON

struct StepRecord {
  int64_t step = 0;  // of the whole training, from 1
  double loss = kNoValue, smoothed_loss = kNoValue;
  double lr = kNoValue, grad_norm = kNoValue;
  int64_t tokens = 0, response_tokens = 0;  // that went in, that were learned from
  double seconds = 0;
  double tokens_per_second = 0;  // 0: tokens / seconds
  bool skipped = false;    // the weights did not change: the loss or a gradient was not finite
  uint64_t rss_bytes = 0;  // 0: the recorder asks
  uint64_t gpu_bytes = 0;  // for who shows the step: the GPU's memory in use by the run; 0: none
  double loss_scale = 1;   // of fp16 training
  // Of a run that keeps rows: the parts of the loss, and how many tokens were kept.
  double taught_loss = kNoValue, kept_loss = kNoValue;
  int64_t kept_tokens = 0;
};

std::string metrics_line(const StepRecord& record);  // JSON without a line end
// None for what is not the record of a step: another line, or no JSON at all.
std::optional<StepRecord> parse_metrics_line(const std::string& line);

struct HeldOutRecord {
  int64_t step = 0;
  double loss = kNoValue;
};
std::optional<HeldOutRecord> parse_held_out_line(const std::string& line);

class MetricsWriter {
 public:
  explicit MetricsWriter(const std::filesystem::path& file);  // a new file; throws FormatError
  ~MetricsWriter();
  MetricsWriter(const MetricsWriter&) = delete;
  MetricsWriter& operator=(const MetricsWriter&) = delete;
  void append(const StepRecord& record);  // throws FormatError when the disk is full
  void append_held_out(int64_t step, double loss);
  void append_line(std::string line);  // one that was written before, without its end
  void flush();                        // to disk; throws FormatError

 private:
  std::filesystem::path path_;
  int fd_ = -1;
  bool torn_ = false;  // the last line could not be written whole
};

// Follows a file that another process may still be writing.
class MetricsReader {
 public:
  explicit MetricsReader(std::filesystem::path file) : path_(std::move(file)) {}
  // What has been added since the last call. Lines that are not records are passed over.
  std::vector<StepRecord> read_new();

 private:
  std::filesystem::path path_;
  uint64_t offset_ = 0;  // of the first line not read yet
};

}  // namespace nibble
