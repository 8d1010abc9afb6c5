// SPDX-License-Identifier: MIT
// libFuzzer target: any bytes as a safetensors file, and, after an 'i', as an index.
#include "formats/safetensors.h"
#include "formats/safetensors_json.h"
#include "fuzz_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace nibble;
  if (size > 0 && data[0] == 'i') {
    try {
      const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
      parse_safetensors_index(text, "index");
    } catch (const FormatError&) {
    }
    return 0;
  }
  // Random bytes rarely hold a header length that fits; 'h' stands for "the header is the rest".
  std::vector<uint8_t> file(data, data + size);
  if (size > 0 && data[0] == 'h') {
    const size_t json = size - 1;
    file.assign(8, 0);
    for (size_t i = 0; i < 8; ++i) file[i] = uint8_t(json >> (8 * i));
    file.insert(file.end(), data + 1, data + size);
  }
  fuzz::parse(file.data(), file.size(), open_safetensors, [](const TensorSource&) {});
  return 0;
}
