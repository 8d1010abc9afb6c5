// SPDX-License-Identifier: MIT
// libFuzzer target: any bytes as a GGUF. What parses must be read the same in pieces as in one go.
#include <algorithm>
#include <cstdlib>

#include "formats/gguf/gguf.h"
#include "fuzz_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace nibble;
  const auto in_pieces = [](const TensorSource& source) {
    for (const TensorInfo& t : source.tensors()) {
      std::vector<std::byte> whole(size_t(t.n_bytes)), pieces(whole.size());
      source.read(t, 0, whole);
      for (size_t at = 0; at < pieces.size(); at += 1021) {
        const size_t n = std::min<size_t>(1021, pieces.size() - at);
        source.read(t, at, std::span(pieces).subspan(at, n));
      }
      if (whole != pieces) std::abort();
    }
  };
  fuzz::parse(data, size, open_gguf, in_pieces);
  return 0;
}
