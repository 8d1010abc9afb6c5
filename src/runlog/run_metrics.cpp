// SPDX-License-Identifier: MIT
#include "runlog/run_metrics.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>

#include "core/error.h"
#include "core/file.h"
#include "core/json.h"

namespace nibble {
namespace {

double number(const nlohmann::json& j, const char* key, double otherwise) {
  const auto it = j.find(key);
  return it != j.end() && it->is_number() ? it->get<double>() : otherwise;
}

int64_t count(const nlohmann::json& j, const char* key) {
  const double v = number(j, key, 0);
  return std::isfinite(v) && std::abs(v) < 9e15 ? int64_t(v) : 0;
}

}  // namespace

std::string metrics_line(const StepRecord& r) {
  nlohmann::ordered_json j = {{"step", r.step},
                              {"loss", r.loss},
                              {"smoothed_loss", r.smoothed_loss},
                              {"lr", r.lr},
                              {"grad_norm", r.grad_norm},
                              {"tokens", r.tokens},
                              {"response_tokens", r.response_tokens},
                              {"seconds", r.seconds},
                              {"tokens_per_second", r.tokens_per_second},
                              {"skipped", r.skipped},
                              {"rss_mib", double(r.rss_bytes) / (1 << 20)},
                              {"loss_scale", r.loss_scale}};
  if (r.kept_tokens > 0 || !std::isnan(r.taught_loss)) {
    j["taught_loss"] = r.taught_loss;
    j["kept_loss"] = r.kept_loss;
    j["kept_tokens"] = r.kept_tokens;
  }
  return j.dump();
}

std::optional<StepRecord> parse_metrics_line(const std::string& line) {
  const auto j = parse_json_or_discard<nlohmann::json>(line);
  const bool step = j.is_object() && j.contains("loss") && number(j, "step", 0) > 0;
  if (!step) return std::nullopt;
  StepRecord r;
  r.step = count(j, "step");
  r.loss = number(j, "loss", kNoValue);
  r.smoothed_loss = number(j, "smoothed_loss", kNoValue);
  r.lr = number(j, "lr", kNoValue);
  r.grad_norm = number(j, "grad_norm", kNoValue);
  r.tokens = count(j, "tokens");
  r.response_tokens = count(j, "response_tokens");
  r.seconds = number(j, "seconds", 0);
  r.tokens_per_second = number(j, "tokens_per_second", 0);
  r.skipped = j.contains("skipped") && j["skipped"] == true;
  const double rss_mib = number(j, "rss_mib", 0);
  r.rss_bytes = rss_mib > 0 && rss_mib < 1e12 ? uint64_t(rss_mib * (1 << 20)) : 0;
  r.loss_scale = number(j, "loss_scale", 1);
  r.taught_loss = number(j, "taught_loss", kNoValue);
  r.kept_loss = number(j, "kept_loss", kNoValue);
  r.kept_tokens = count(j, "kept_tokens");
  return r;
}

std::optional<HeldOutRecord> parse_held_out_line(const std::string& line) {
  const auto j = parse_json_or_discard<nlohmann::json>(line);
  if (!j.is_object() || !j.contains("held_out_loss")) return std::nullopt;
  return HeldOutRecord{count(j, "step"), number(j, "held_out_loss", kNoValue)};
}

MetricsWriter::MetricsWriter(const std::filesystem::path& file) : path_(file) {
  fd_ = ::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644);
  if (fd_ < 0) throw_format("cannot create {}: {}", file.string(), std::strerror(errno));
}

MetricsWriter::~MetricsWriter() { ::close(fd_); }

void MetricsWriter::append(const StepRecord& record) { append_line(metrics_line(record)); }

void MetricsWriter::append_held_out(int64_t step, double loss) {
  append_line(nlohmann::ordered_json{{"step", step}, {"held_out_loss", loss}}.dump());
}

void MetricsWriter::flush() {
  if (::fsync(fd_) != 0) {
    throw_format("cannot flush {}: {}", path_.string(), std::strerror(errno));
  }
}

void MetricsWriter::append_line(std::string line) {
  line = (torn_ ? "\n" : "") + line + "\n";
  ssize_t n = -1;
  while ((n = ::write(fd_, line.data(), line.size())) < 0 && errno == EINTR) continue;
  const bool whole = n == ssize_t(line.size());
  torn_ = !whole && (torn_ || n > 0);
  if (!whole) {
    throw_format("cannot write {}: {}", path_.string(),
                 n < 0 ? std::strerror(errno) : "the disk is full");
  }
}

std::vector<StepRecord> MetricsReader::read_new() {
  constexpr uint64_t kBlock = 4 << 20;
  std::vector<StepRecord> records;
  std::error_code ec;
  if (!std::filesystem::is_regular_file(path_, ec)) return records;  // not there yet
  const InputFile file(path_);
  if (file.size() < offset_) offset_ = 0;  // another file under the same name
  std::string text;
  while (offset_ < file.size()) {
    text.resize(size_t(std::min(kBlock, file.size() - offset_)));
    file.read(offset_, std::as_writable_bytes(std::span(text)));
    const size_t last = text.rfind('\n');
    if (last == std::string::npos) {
      if (text.size() < kBlock) break;  // a line still being written
      offset_ += text.size();           // not ours: no line of a record is that long
      continue;
    }
    for (size_t begin = 0; begin <= last;) {
      const size_t end = text.find('\n', begin);
      if (auto r = parse_metrics_line(text.substr(begin, end - begin))) records.push_back(*r);
      begin = end + 1;
    }
    offset_ += last + 1;
  }
  return records;
}

}  // namespace nibble
