// SPDX-License-Identifier: MIT
#include "tokenizer/stream_decoder.h"

#include "tokenizer/unicode.h"

namespace nibble {

std::string StreamDecoder::push(int32_t id) {
  std::string out;
  push(id, out);
  return out;
}

void StreamDecoder::push(int32_t id, std::string& out) {
  if (special_ == DecodeSpecial::skip && tokenizer_.is_special(id)) return;
  std::string_view rest = tokenizer_.token_bytes(id);
  if (!pending_.empty()) {
    pending_ += rest;
    rest = pending_;
  }
  std::string held;
  while (!rest.empty()) {
    const size_t good = valid_utf8_prefix(rest);
    out += rest.substr(0, good);
    rest.remove_prefix(good);
    if (rest.empty()) break;
    const InvalidPart bad = invalid_part(rest);
    if (bad.incomplete) {
      held = rest;
      break;
    }
    append_utf8(out, 0xfffd);
    rest.remove_prefix(bad.length);
  }
  pending_ = std::move(held);
}

std::string StreamDecoder::flush() {
  std::string out;
  if (!pending_.empty()) append_utf8(out, 0xfffd);
  pending_.clear();
  return out;
}

}  // namespace nibble
