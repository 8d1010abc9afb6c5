// SPDX-License-Identifier: MIT
// Standard output: a stream that knows why writing failed, and that can spell out what would act
// on a terminal (core/text/visible.h). What a person reads on a terminal comes from models and
// files of others; what goes into a pipe or a file stays as it is.
#pragma once
#include <array>
#include <ostream>
#include <streambuf>
#include <string>

namespace nibble {

enum class Controls { raw, visible };

class OutputBuffer final : public std::streambuf {
 public:
  // Visible where `fd` is a terminal.
  explicit OutputBuffer(int fd);
  ~OutputBuffer() override;

  bool terminal() const { return terminal_; }
  int error() const { return error_; }  // errno of the first write that failed; 0: none
  // For what is written from now on.
  void set_controls(Controls controls);

 protected:
  int_type overflow(int_type c) override;
  int sync() override;

 private:
  bool send(bool all);  // false: it cannot be written
  void write(std::string_view text);

  int fd_;
  bool terminal_;
  Controls controls_;
  int error_ = 0;
  std::string begun_;  // of a character whose end is still to come
  std::array<char, 1 << 14> buffer_;
};

// The buffer behind a stream; null: the stream is something else (a test's string).
OutputBuffer* output_buffer(std::ostream& out);

}  // namespace nibble
