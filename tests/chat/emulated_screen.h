// SPDX-License-Identifier: MIT
// A terminal as a person sees it: what a program writes becomes rows of text and a cursor. Knows
// what the line editor sends; anything else fails the test. Joins no emoji, as many terminals.
#pragma once
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tokenizer/unicode.h"

namespace nibble::test {

class EmulatedScreen {
 public:
  EmulatedScreen(size_t rows, size_t columns) : columns_(columns), cells_(rows) { erase_below(); }

  void write(std::string_view bytes) {
    bytes_ += bytes;
    while (!bytes_.empty()) {
      const size_t used = bytes_[0] == '\x1b' ? obey() : show();
      if (used == 0) return;
      bytes_.erase(0, used);
    }
  }
  std::string row(size_t i) const { return text(cells_[i]); }
  // The last row with something in it.
  std::string last_row() const {
    size_t i = cells_.size();
    while (i > 1 && row(i - 1).empty()) --i;
    return row(i - 1);
  }
  size_t cursor_row() const { return row_; }
  size_t cursor_column() const { return column_; }
  // What went out at the top, and what is there.
  std::string everything() const {
    std::string all = gone_;
    for (const Row& r : cells_) all += text(r) + "\n";
    return all;
  }

 private:
  using Row = std::vector<std::string>;  // "": the right half of a wide character

  static size_t width(char32_t c) {
    if (c == 0x200d || c == 0xfe0f || (c >= 0x300 && c < 0x370)) return 0;
    const bool wide = (c >= 0x2e80 && c < 0xa000) || (c >= 0xac00 && c < 0xd7a4) ||
                      (c >= 0xff00 && c < 0xff61) || (c >= 0x1f300 && c < 0x1fb00);
    return wide ? 2 : 1;
  }
  static std::string text(const Row& r) {
    std::string all;
    for (const std::string& cell : r) all += cell;
    return all.substr(0, all.find_last_not_of(' ') + 1);
  }
  void new_row() {
    if (row_ + 1 < cells_.size()) {
      ++row_;
      return;
    }
    gone_ += text(cells_[0]) + "\n";
    cells_.erase(cells_.begin());
    cells_.emplace_back(columns_, " ");
  }
  size_t show() {
    if (bytes_[0] == '\r') return column_ = 0, 1;
    if (bytes_[0] == '\n') return new_row(), 1;
    EXPECT_GE(uint8_t(bytes_[0]), 0x20) << "a control character";
    const size_t length = uint8_t(bytes_[0]) < 0x80   ? 1
                          : uint8_t(bytes_[0]) < 0xe0 ? 2
                          : uint8_t(bytes_[0]) < 0xf0 ? 3
                                                      : 4;
    if (bytes_.size() < length) return 0;
    const size_t w = width(decode_valid(bytes_.data()).value);
    const std::string shown = bytes_.substr(0, length);
    if (w == 0) {
      if (column_ > 0) cells_[row_][column_ - 1] += shown;
      return length;
    }
    if (column_ + w > columns_) column_ = 0, new_row();
    cells_[row_][column_] = shown;
    if (w == 2) cells_[row_][column_ + 1] = "";
    column_ += w;
    return length;
  }
  void erase_to_end() {
    cells_[row_].resize(column_);
    cells_[row_].resize(columns_, " ");
  }
  void erase_below() {
    for (size_t i = row_ + 1; i < cells_.size(); ++i) cells_[i].assign(columns_, " ");
    erase_to_end();
  }
  size_t obey() {
    if (bytes_.size() < 3) return 0;
    EXPECT_EQ(bytes_[1], '[');
    size_t end = 2;
    while (end < bytes_.size() && uint8_t(bytes_[end]) < 0x40) ++end;
    if (end == bytes_.size()) return 0;
    const std::string sequence = bytes_.substr(2, end - 1);
    if (sequence == "K") {
      erase_to_end();
    } else if (sequence == "J") {
      erase_below();
    } else if (sequence.back() == 'A') {
      row_ -= std::min(row_, size_t(std::stoul(sequence)));
    } else if (sequence == "H") {
      row_ = column_ = 0;
    } else if (sequence == "2J") {
      for (Row& r : cells_) r.assign(columns_, " ");
    } else {
      EXPECT_TRUE(sequence == "?2004h" || sequence == "?2004l") << sequence;
    }
    return end + 1;
  }

  size_t columns_;
  std::vector<Row> cells_;
  size_t row_ = 0, column_ = 0;
  std::string gone_, bytes_;
};

}  // namespace nibble::test
