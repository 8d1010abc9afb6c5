// SPDX-License-Identifier: MIT
// Event files for TensorBoard: the bytes, and what a resumed run does. TensorBoard's own reader is
// asked by tensorboard_reader.py.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/error.h"
#include "core/file.h"
#include "runlog/tensorboard/event_bytes.h"
#include "runlog/tensorboard/event_file.h"
#include "support/text.h"
#include "support/toy_dir.h"

namespace nibble::test {
namespace {

namespace fs = std::filesystem;

// RFC 3720, B.4, and the check value of the polynomial.
TEST(Tensorboard, ChecksumsOfKnownTexts) {
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  std::string up;
  for (char c = 0; c < 32; ++c) up += c;
  EXPECT_EQ(crc32c(up), 0x46dd794eu);
  EXPECT_EQ(crc32c(""), 0u);
  EXPECT_EQ(masked_crc32c(""), 0xa282ead8u);
}

TEST(Tensorboard, AScalarByteByByte) {
  const std::string event = scalar_event(1.5, 300, "a/b", 2.0f);
  const std::string want(
      "\x09\0\0\0\0\0\0\xf8\x3f"  // wall_time
      "\x10\xac\x02"              // step
      "\x2a\x0c\x0a\x0a\x0a\x03"
      "a/b"
      "\x15\0\0\0\x40",
      9 + 3 + 6 + 3 + 5);
  EXPECT_EQ(event, want);
  const std::string record = tfrecord(event);
  EXPECT_EQ(record.size(), 8 + 4 + event.size() + 4);
  EXPECT_EQ(record.substr(12, event.size()), event);
}

uint32_t number_at(const std::string& bytes, size_t at) {
  uint32_t value = 0;
  std::memcpy(&value, bytes.data() + at, 4);
  return value;
}

// The events of all files, in the order in which TensorBoard reads them.
std::vector<std::string> events_in(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) files.push_back(entry.path());
  std::ranges::sort(files);
  std::vector<std::string> out;
  for (const fs::path& file : files) {
    const std::string bytes = read_text_file(file);
    for (size_t at = 0; at < bytes.size();) {
      const size_t n = number_at(bytes, at);
      EXPECT_EQ(number_at(bytes, at + 8), masked_crc32c(bytes.substr(at, 8)));
      EXPECT_EQ(number_at(bytes, at + 12 + n), masked_crc32c(bytes.substr(at + 12, n)));
      out.push_back(bytes.substr(at + 12, n));
      at += 16 + n;
    }
  }
  return out;
}

TEST(Tensorboard, AResumedRunGoesOnInAFileOfItsOwn) {
  const TemporaryDirectory dir("events");
  const fs::path folder = dir.path() / "curves";
  check_tensorboard_folder(folder, false);
  {
    EventFile file(folder);
    file.step(1, {{"train/loss", 4}, {"train/gradient_norm", std::nan("")}});
    file.step(2, {{"train/loss", 3}});
    file.beside(2, {{"eval/loss", 3.5}});
  }
  { EventFile(folder).step(2, {{"train/loss", 3.25}}); }
  const std::vector<std::string> events = events_in(folder);
  ASSERT_EQ(events.size(), 8u);  // version, start, loss, loss, eval; version, start, loss
  EXPECT_TRUE(contains(events[0], "brain.Event:2"));
  EXPECT_TRUE(contains(events[2], "train/loss"));
  EXPECT_TRUE(contains(events[4], "eval/loss"));
  EXPECT_TRUE(contains(events[5], "brain.Event:2"));
  EXPECT_TRUE(contains(events[7], "train/loss"));
  check_tensorboard_folder(folder, true);
  EXPECT_THROW(check_tensorboard_folder(folder, false), UsageError);
  replace_file(dir.path() / "file", "x");
  EXPECT_THROW(check_tensorboard_folder(dir.path() / "file", true), UsageError);
}

}  // namespace
}  // namespace nibble::test
