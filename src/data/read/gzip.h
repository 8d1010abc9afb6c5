// SPDX-License-Identifier: MIT
// Data files that are compressed, told by their first bytes and not by their name.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace nibble {

bool is_gzip(std::string_view bytes);

// What decompressed text may take. Text shrinks to a tenth, logs of the same few lines to a
// hundredth; what grows a thousandfold was made to fill a machine's memory.
struct GzipLimits {
  uint64_t most_bytes = 16ull << 30;
  uint64_t most_times = 200;       // the compressed size, asked
  uint64_t from_bytes = 64 << 20;  // only from here on
};
// All members of the file, one after the other. Throws FormatError, with `name`, for what is
// damaged, cut off or too large, and where nibble was built without zlib.
std::string gunzip(std::string_view bytes, const std::string& name, const GzipLimits& limits = {});

}  // namespace nibble
