// SPDX-License-Identifier: MIT
// A small pull reader for JSON text: the big tables of a tokenizer.json are read straight into
// their own structures, without a document tree. Errors name the file and the offset.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace nibble {

class JsonReader {
 public:
  // `text` must be valid UTF-8 and outlive the reader; `name` is the file, for messages.
  JsonReader(std::string_view text, std::string name) : text_(text), name_(std::move(name)) {}

  char peek();             // the next character that is not white space; 0 at the end
  void expect(char c);     // takes it or throws FormatError
  bool accept(char c);     // takes it if it is there
  uint32_t read_uint32();  // a plain non-negative integer
  // A string without its escapes: a view of the text, or of `storage` when there were escapes.
  std::string_view read_string(std::string& storage);
  // Steps over any value and returns its text. Nesting is limited.
  std::string_view skip_value();
  void expect_end();

  // Members of an object: while (next_member(...)) { read or skip the value }. Start with
  // `first = true` before the brace.
  bool next_member(bool& first, std::string_view& key, std::string& storage);
  bool next_element(bool& first);

  size_t offset() const { return at_; }
  void seek(size_t offset) { at_ = offset; }
  std::string_view text() const { return text_; }
  const std::string& name() const { return name_; }
  void set_section(std::string_view section) { section_ = section; }  // for messages
  [[noreturn]] void fail(std::string_view what) const;

 private:
  void skip_space() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\r' || text_[at_] == '\t')) {
      ++at_;
    }
  }
  void skip_string();
  void unescape(std::string& out);
  uint32_t hex4();

  std::string_view text_;
  std::string name_, section_;
  size_t at_ = 0;
};

}  // namespace nibble
