// SPDX-License-Identifier: MIT
// libFuzzer target: bytes as the weights of a tiny model, converted into every format. The first
// byte says into which, the rest is a safetensors file, or after an 'h' its header alone, whose
// payload is as long as the header says (up to 1 MiB of ones, as scales).
#include <algorithm>

#include "convert/convert.h"
#include "formats/safetensors.h"
#include "formats/safetensors_json.h"
#include "fuzz_file.h"

namespace {

using namespace nibble;

constexpr const char* kConfig =
    R"({"model_type":"qwen3","hidden_size":64,"num_hidden_layers":1,"num_attention_heads":1,)"
    R"("num_key_value_heads":1,"head_dim":64,"intermediate_size":64,"vocab_size":16,)"
    R"("rms_norm_eps":1e-6,"max_position_embeddings":64,"rope_theta":1e4,)"
    R"("tie_word_embeddings":true})";

ConvertSettings settings_of(uint8_t byte) {
  ConvertSettings s;
  constexpr Container kContainers[] = {Container::gguf, Container::dat, Container::safetensors};
  s.container = kContainers[byte % 3];
  const bool gguf = s.container == Container::gguf;
  constexpr Packing kPackings[] = {Packing::stored, Packing::nvfp4, Packing::none, Packing::q8_0};
  s.packing = kPackings[byte / 3 % (gguf ? 4 : 3)];
  if (byte & 0x40) s.levels = ScaleLevels::two;
  // Others' names are of directories alone; their entries are the same in one file.
  if (s.container == Container::safetensors && (byte & 0x80)) {
    s.names = byte & 0x20 ? Nvfp4Names::modelopt : Nvfp4Names::compressed_tensors;
    s.packing = Packing::nvfp4;
    s.levels = ScaleLevels::two;
  }
  return s;
}

// The header behind the 'h' becomes a file with a payload of the length it wants.
bool complete(std::vector<uint8_t>& file) {
  const std::string json(file.begin() + 1, file.end());
  uint64_t payload = 0;
  try {
    for (const TensorInfo& t : parse_safetensors_json(json, "header").tensors) {
      payload = std::max(payload, t.file_offset + t.n_bytes);
    }
  } catch (const FormatError&) {
    return false;
  }
  if (payload > (1 << 20)) return false;
  file.assign(8, 0);
  for (size_t i = 0; i < 8; ++i) file[i] = uint8_t(json.size() >> (8 * i));
  file.insert(file.end(), json.begin(), json.end());
  file.resize(file.size() + size_t(payload), 0x38);
  return true;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  static ThreadPool pool(1);
  static const Config qwen3 = parse_config(kConfig, "config.json");
  Config config = qwen3;
  config.qk_norm = data[0] % 5 < 2;  // the order of rows and the scales are a family's
  config.qkv_bias = data[0] % 5 == 2;
  std::vector<uint8_t> file(data + 1, data + size);
  if (file[0] == 'h' && !complete(file)) return 0;
  fuzz::parse(file.data(), file.size(), open_safetensors, [&](const TensorSource& source) {
    try {
      convert_weights(source, &config, "/dev/null", settings_of(data[0]), pool);
    } catch (const UsageError&) {
    }
  });
  return 0;
}
