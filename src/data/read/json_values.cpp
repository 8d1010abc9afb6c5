// SPDX-License-Identifier: MIT
#include "data/read/json_values.h"

#include <algorithm>

#include "core/error.h"

namespace nibble {
namespace {

class Cutter {
 public:
  Cutter(std::string_view text, size_t begin) : text_(text), at_(begin), counted_(begin) {}

  DataUnits cut() {
    for (space(); at_ < text_.size(); space()) {
      if (text_[at_] == '[') {
        array();
      } else if (text_[at_] == '{') {
        value();
      } else {
        throw_format("line {}: expected an array or an object of JSON, found '{}'", line(at_),
                     excerpt(text_.substr(at_)));
      }
    }
    out_.lines = line(text_.size()) - (text_.ends_with('\n') || text_.empty() ? 1 : 0);
    return std::move(out_);
  }

 private:
  void space() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\r' || text_[at_] == '\t')) {
      ++at_;
    }
  }

  // Of a place at or after the last one asked for.
  int64_t line(size_t at) {
    line_ += std::count(text_.begin() + std::ptrdiff_t(counted_),
                        text_.begin() + std::ptrdiff_t(at), '\n');
    counted_ = at;
    return line_;
  }

  void array() {
    const int64_t opened = line(at_);
    ++at_;
    for (bool first = true;; first = false) {
      space();
      if (at_ < text_.size() && text_[at_] == ']' && first) break;
      if (at_ < text_.size() && text_[at_] != ']' && text_[at_] != ',') value();
      space();
      if (at_ >= text_.size()) {
        throw_format("the file ends inside the array that begins in line {}: is it cut off?",
                     opened);
      }
      if (text_[at_] == ']') break;
      if (text_[at_] != ',') {
        throw_format("line {}: expected , or ] after an element of the array, found '{}'",
                     line(at_), excerpt(text_.substr(at_)));
      }
      ++at_;
      space();
      if (at_ < text_.size() && (text_[at_] == ',' || text_[at_] == ']')) {
        throw_format("line {}: a comma with no element after it", line(at_));
      }
    }
    ++at_;
  }

  void value() {
    const size_t begin = at_;
    const int64_t first = line(begin);
    int64_t depth = 0;
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (c == '"') {
        string();
        if (at_ >= text_.size()) break;
      } else if (c == '{' || c == '[') {
        ++depth;
      } else if (c == '}' || c == ']') {
        if (depth == 0) break;  // of the array around a plain value
        if (--depth == 0) {
          ++at_;
          break;
        }
      } else if (c == ',' && depth == 0) {
        break;
      }
    }
    if (depth > 0 || at_ > text_.size()) {
      throw_format("the file ends inside the value that begins in line {}: is it cut off?", first);
    }
    out_.units.push_back({first, begin, text_.substr(begin, at_ - begin)});
  }

  // From its first mark to its last.
  void string() {
    for (++at_; at_ < text_.size() && text_[at_] != '"'; ++at_) {
      if (text_[at_] == '\\') ++at_;
    }
    at_ = std::min(at_, text_.size());
  }

  std::string_view text_;
  size_t at_, counted_;
  int64_t line_ = 1;
  DataUnits out_;
};

}  // namespace

DataUnits split_json(std::string_view text, size_t begin) { return Cutter(text, begin).cut(); }

}  // namespace nibble
