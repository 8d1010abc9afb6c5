// SPDX-License-Identifier: MIT
#include "data/read/gzip.h"

#include <algorithm>

#include "core/error.h"

#ifdef NIBBLE_ZLIB
#include <zlib.h>
#endif

namespace nibble {

bool is_gzip(std::string_view bytes) { return bytes.starts_with("\x1f\x8b"); }

#ifdef NIBBLE_ZLIB
namespace {

class Inflater {
 public:
  explicit Inflater(const std::string& name) : name_(name) {
    constexpr int kGzipOnly = 16 + MAX_WBITS;
    if (inflateInit2(&z_, kGzipOnly) != Z_OK) throw_format("{}: zlib cannot start", name_);
  }
  ~Inflater() { inflateEnd(&z_); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  void run(std::string_view in, std::string& out, const GzipLimits& limits) {
    size_t given = 0;
    for (;;) {
      if (z_.avail_in == 0 && given < in.size()) {  // zlib counts in 32 bits
        const size_t piece = std::min<size_t>(in.size() - given, 1u << 30);
        z_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(in.data() + given));
        z_.avail_in = uInt(piece);
        given += piece;
      }
      z_.next_out = reinterpret_cast<Bytef*>(piece_);
      z_.avail_out = sizeof piece_;
      const int result = inflate(&z_, Z_NO_FLUSH);
      const size_t made = sizeof piece_ - z_.avail_out;
      check_size(out.size() + made, in.size(), limits);
      out.append(piece_, made);
      if (result == Z_STREAM_END) {
        if (z_.avail_in == 0 && given == in.size()) return;
        inflateReset(&z_);  // another member, or something that is none
      } else if (result != Z_OK) {
        const bool cut = result == Z_BUF_ERROR && z_.avail_in == 0;
        throw_format("{}: {} (after {} bytes of text); download or compress it again", name_,
                     cut      ? "the gzip file is cut off"
                     : z_.msg ? fmt::format("the gzip file is damaged: {}", z_.msg)
                              : "the gzip file is damaged",
                     out.size());
      } else if (made == 0 && z_.avail_in == 0 && given == in.size()) {
        throw_format("{}: the gzip file is cut off (after {} bytes of text)", name_, out.size());
      }
    }
  }

 private:
  void check_size(uint64_t size, uint64_t compressed, const GzipLimits& limits) const {
    if (size > limits.most_bytes) {
      throw_format("{}: expands to more than {} bytes, which are not read into memory; split it",
                   name_, limits.most_bytes);
    }
    if (size > limits.from_bytes && size / limits.most_times > compressed) {
      throw_format(
          "{}: expands to more than {} times its {} bytes, which no text does: a file made to fill "
          "the memory. If it is yours, decompress it with gunzip first",
          name_, limits.most_times, compressed);
    }
  }

  const std::string& name_;
  z_stream z_{};
  char piece_[1 << 16];
};

}  // namespace

std::string gunzip(std::string_view bytes, const std::string& name, const GzipLimits& limits) {
  std::string out;
  Inflater(name).run(bytes, out, limits);
  return out;
}
#else
std::string gunzip(std::string_view, const std::string& name, const GzipLimits&) {
  throw_format(
      "{}: is compressed with gzip, and this nibble was built without zlib: decompress it with "
      "gunzip, or install zlib1g-dev and build again",
      name);
}
#endif

}  // namespace nibble
