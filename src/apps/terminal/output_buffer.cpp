// SPDX-License-Identifier: MIT
#include "apps/terminal/output_buffer.h"

#include <unistd.h>

#include <cerrno>
#include <utility>

#include "core/text/visible.h"

namespace nibble {

OutputBuffer::OutputBuffer(int fd)
    : fd_(fd),
      terminal_(::isatty(fd) != 0),
      controls_(terminal_ ? Controls::visible : Controls::raw) {
  setp(buffer_.data(), buffer_.data() + buffer_.size());
}

OutputBuffer::~OutputBuffer() { send(true); }

void OutputBuffer::set_controls(Controls controls) {
  send(true);
  controls_ = controls;
}

void OutputBuffer::write(std::string_view text) {
  while (!text.empty() && error_ == 0) {
    const ssize_t n = ::write(fd_, text.data(), text.size());
    if (n >= 0) {
      text.remove_prefix(size_t(n));
    } else if (errno != EINTR) {
      error_ = errno;
    }
  }
}

bool OutputBuffer::send(bool all) {
  const std::string_view filled(pbase(), size_t(pptr() - pbase()));
  if (controls_ == Controls::raw) {
    write(filled);
  } else {
    const std::string text = std::exchange(begun_, {}).append(filled);
    size_t whole = all ? text.size() : whole_characters(text);
    if (!all && whole > 0 && text[whole - 1] == '\r') --whole;  // a line end, perhaps
    begun_ = text.substr(whole);
    write(visible_text(std::string_view(text).substr(0, whole)));
  }
  setp(buffer_.data(), buffer_.data() + buffer_.size());
  return error_ == 0;
}

OutputBuffer::int_type OutputBuffer::overflow(int_type c) {
  if (!send(false)) return traits_type::eof();
  if (!traits_type::eq_int_type(c, traits_type::eof())) sputc(traits_type::to_char_type(c));
  return traits_type::not_eof(c);
}

int OutputBuffer::sync() { return send(false) ? 0 : -1; }

OutputBuffer* output_buffer(std::ostream& out) { return dynamic_cast<OutputBuffer*>(out.rdbuf()); }

}  // namespace nibble
