// SPDX-License-Identifier: MIT
#include "apps/terminal/standard_input.h"

#include <iterator>

#include "core/error.h"

namespace nibble {
namespace {

[[noreturn]] void failed(const char* why) {
  throw_format("cannot read standard input{}: give it text, a file or a pipe", why);
}

}  // namespace

std::string read_all(std::istream& in) {
  std::string text;
  try {
    text.assign(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  } catch (const std::ios_base::failure&) {  // thrown by the buffer: a directory
    failed(" (it is a directory, or broken)");
  }
  if (in.bad()) failed("");
  return text;
}

bool read_line(std::istream& in, std::string& line) {
  const bool more = bool(std::getline(in, line));
  if (in.bad()) failed("");
  return more;
}

}  // namespace nibble
