// SPDX-License-Identifier: MIT
// libFuzzer target: any bytes as a GGUF that is a model: its config, its tensors under Hugging Face
// names, its tokenizer and the other texts. What is accepted must be readable by their readers.
#include <cstdlib>

#include "core/error.h"
#include "fuzz_file.h"
#include "model/config.h"
#include "model/gguf_model.h"
#include "runtime/gguf_texts.h"
#include "tokenizer/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace nibble;
  const fuzz::MemoryFile file(data, size);
  // Each on its own: a file without one may have the others. FormatError is a right answer.
  const auto attempt = [&](auto&& what) {
    try {
      what();
    } catch (const FormatError&) {
    }
  };
  attempt([&] {
    const auto source = open_gguf(file.path());
    const GgufMetadata& m = source->values();
    attempt([&] { parse_config(gguf_config_json(*source), "fuzz"); });
    attempt([&] {
      const Tokenizer t = Tokenizer::parse(gguf_tokenizer_json(m), "fuzz");
      if (t.decode(t.encode("a 1")).size() > 3) std::abort();
    });
    attempt([&] { gguf_tokenizer_config_json(m); });
    attempt([&] { gguf_generation_config_json(m); });
  });
  attempt([&] {
    const auto source = open_model_source(file.path(), TiedMatrix::once);
    fuzz::read_everything(*source);  // NVFP4 as packed matrices, too
  });
  return 0;
}
