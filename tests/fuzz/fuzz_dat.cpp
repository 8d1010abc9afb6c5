// SPDX-License-Identifier: MIT
// libFuzzer target: any bytes as a .dat. What parses must be written back byte for byte.
#include <algorithm>
#include <cstdlib>

#include "core/file.h"
#include "formats/dat.h"
#include "fuzz_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace nibble;
  // Disk writes are slow, so only every 64th valid input makes the round trip.
  static unsigned valid = 0;
  const auto rewrite = [&](const TensorSource& source) {
    if (valid++ % 64 != 0) return;
    const std::filesystem::path copy =
        std::filesystem::temp_directory_path() / ("fuzz_dat." + std::to_string(::getpid()));
    DatWriter writer(copy, source.tensors());
    for (const TensorInfo& t : source.tensors()) {
      std::vector<std::byte> bytes(size_t(t.n_bytes));
      source.read(t, 0, bytes);
      writer.append(bytes);
    }
    writer.finish();
    const std::string written = read_text_file(copy);
    std::filesystem::remove(copy);
    if (!std::equal(written.begin(), written.end(), data, data + size,
                    [](char a, uint8_t b) { return uint8_t(a) == b; })) {
      std::abort();
    }
  };
  fuzz::parse(data, size, open_dat, rewrite);
  return 0;
}
