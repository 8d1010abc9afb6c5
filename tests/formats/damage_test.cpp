// SPDX-License-Identifier: MIT
// Damaged files: every truncation and every flipped bit of a small file either still parses into
// something consistent or is a FormatError. Run under ASan these also prove no stray access.
#include "formats/dat.h"
#include "formats/files.h"
#include "formats/safetensors.h"
#include "formats/weights.h"
#include "support/gguf_file.h"

namespace nibble {
namespace {

using test::append;
using test::tensor;

std::vector<TensorInfo> small_model() {
  return {tensor("norm", DType::f16, {3}), tensor("p.weight.qdata", DType::u8, {2, 8}),
          tensor("p.weight.scale", DType::f8_e4m3, {2, 1}), tensor("e.weight", DType::f32, {2, 2})};
}

void fill(TensorWriter& w) {
  append(w, std::string(size_t(w.payload_bytes()), '\x11'));
  w.finish();
}

class Damage : public test::ScratchTest {
 protected:
  // Opens the file and touches every byte it claims to have. True when that went well.
  bool survives(const std::string& name, const std::string& bytes) {
    const auto p = put(name, bytes);
    try {
      const auto source = open_tensor_source(p);
      for (const TensorInfo& t : source->tensors()) test::read_bytes(*source, t);
      const WeightIndex index(*source);
      for (const LogicalTensor& t : index.tensors()) {
        if (t.packed()) {
          std::vector<uint8_t> codes(size_t(t.numel() / 2)), scales(size_t(t.numel() / 16));
          read_nvfp4_rows(*source, t, 0, t.rows, codes.data(), scales.data());
        } else {
          std::vector<float> x(size_t(t.numel()));
          read_rows_f32(*source, t, 0, t.rows, x.data());
        }
      }
      return true;
    } catch (const FormatError& e) {
      EXPECT_NE(std::string(e.what()), "");
      return false;
    }
  }

  void break_it(const std::string& name, size_t header_bytes) {
    const std::string good = read_text_file(path(name));
    ASSERT_TRUE(survives(name, good));
    for (size_t n = 0; n < good.size(); ++n) {
      EXPECT_FALSE(survives(name, good.substr(0, n))) << "cut to " << n << " bytes";
    }
    int survivors = 0;
    for (size_t i = 0; i < header_bytes * 8; ++i) {
      std::string bad = good;
      bad[i / 8] = char(bad[i / 8] ^ (1 << i % 8));
      survivors += survives(name, bad);
    }
    // A flipped bit in a name goes unseen (no format has checksums); most others do not.
    EXPECT_LT(survivors, int(header_bytes) * 8);
    EXPECT_GT(survivors, 0);
  }
};

TEST_F(Damage, Dat) {
  DatWriter w(path("x.dat"), small_model());
  fill(w);
  break_it("x.dat", size_t(std::filesystem::file_size(path("x.dat"))));  // headers are everywhere
}

TEST_F(Damage, Safetensors) {
  SafetensorsWriter w(path("x.safetensors"), small_model(), {{"format", "pt"}});
  fill(w);
  const auto first = open_safetensors(path("x.safetensors"))->tensors()[0].file_offset;
  break_it("x.safetensors", size_t(first));
}

TEST_F(Damage, Gguf) {
  test::GgufFile file;
  file.text("general.name", "x");
  file.texts("names", {"a", "bc"});
  file.integers("numbers", {1, 2});
  file.add("q", {32, 2}, 2, std::string(36, '\x11'));
  file.add_f32("n", {3}, {1, 2, 3});
  file.write(path("x.gguf"));
  break_it("x.gguf", file.header().size());
}

TEST_F(Damage, SafetensorsIndex) {
  ShardedSafetensorsWriter w(dir_, small_model(), {}, 20);
  fill(w);
  const std::string name = "model.safetensors.index.json";
  const std::string good = read_text_file(path(name));
  for (size_t n = 0; n + 2 < good.size(); ++n) {  // the last two bytes are "}\n"
    EXPECT_FALSE(survives(name, good.substr(0, n))) << n;
  }
  for (size_t i = 0; i < good.size() * 8; ++i) {
    std::string bad = good;
    bad[i / 8] = char(bad[i / 8] ^ (1 << i % 8));
    survives(name, bad);
  }
}

}  // namespace
}  // namespace nibble
