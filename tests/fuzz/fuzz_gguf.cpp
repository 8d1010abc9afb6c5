// SPDX-License-Identifier: MIT
// libFuzzer target: any bytes as a GGUF. What parses must be read the same in pieces as in one go,
// and what is written of it must read as it did.
#include <algorithm>
#include <cstdlib>

#include "formats/gguf/gguf.h"
#include "formats/gguf/gguf_writer.h"
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
  const auto again = [&](const GgufSource& source) {
    in_pieces(source);
    const std::filesystem::path out = fmt::format("/dev/shm/nibble-fuzz-{}.gguf", ::getpid());
    std::vector<TensorInfo> infos = source.tensors();
    GgufWriter writer(out, infos, source.values());
    for (const TensorInfo& t : source.tensors()) {
      std::vector<std::byte> stored(size_t(t.stored_bytes()));
      source.read_stored(t, 0, stored);
      writer.append(stored);
    }
    writer.finish();
    const auto read = open_gguf(out);
    for (const auto& [key, value] : source.values().values()) {
      if (key != "general.alignment" && !read->values().has(key)) std::abort();
    }
    for (const TensorInfo& t : source.tensors()) {
      const TensorInfo& there = read->at(t.name);
      std::vector<std::byte> a(size_t(t.stored_bytes())), b(size_t(there.stored_bytes()));
      source.read_stored(t, 0, a);
      read->read_stored(there, 0, b);
      if (a != b || t.shape != there.shape || t.blocks != there.blocks) std::abort();
    }
  };
  fuzz::parse(data, size, open_gguf, again);
  return 0;
}
