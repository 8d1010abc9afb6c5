// SPDX-License-Identifier: MIT
// Runs one op of the CPU backend so and so often on one thread, for an emulator to count its
// instructions (bench/op_instructions.sh): machines that cannot be had are compared that way.
//
//   op_instructions list
//   op_instructions CASE REPEATS        prints the elements of one repeat
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "backends/cpu/cpu_backend.h"
#include "core/half.h"
#include "core/rng.h"

namespace nibble::bench {
namespace {

constexpr int64_t kIn = 1024, kOut = 512, kHeads = 16, kKeyHeads = 4, kWidth = 128, kKeys = 512;

struct Case {
  const char* name;
  int64_t tokens;
  const char* per;  // what an element is
};
constexpr Case kCases[] = {
    {"nvfp4 int8", 1, "weight"},
    {"nvfp4 int8", 16, "weight and token"},
    {"nvfp4 f32", 1, "weight"},
    {"nvfp4 f32", 16, "weight and token"},
    {"nvfp4 bf16", 16, "weight and token"},
    {"bf16 f32", 1, "weight"},
    {"bf16 bf16", 16, "weight and token"},
    {"attention f32", 1, "key and head column"},
    {"attention bf16", 64, "key and head column"},
};
std::string label(const Case& c) { return std::string(c.name) + ' ' + std::to_string(c.tokens); }

class Runner {
 public:
  Runner() : backend_(make_cpu_backend(1)) {}

  // Elements of one run; `run` is empty where there is no such case.
  std::function<void()> prepare(const Case& c, double* elements) {
    const std::string name = c.name;
    const bool half = name.ends_with("bf16");
    const DType type = half ? DType::bf16 : DType::f32;
    if (name.starts_with("attention")) return attention(c.tokens, type, elements);
    const Activations rounding = name.ends_with("int8") ? Activations::int8 : Activations::none;
    LinearWeight w;
    w.out = kOut, w.in = kIn;
    if (name.starts_with("nvfp4")) {
      w.packed = make_tensor(memory(backend_->packed_bytes(kOut, kIn)), DType::u8,
                             {int64_t(backend_->packed_bytes(kOut, kIn))});
      std::vector<uint8_t> codes(size_t(kOut * kIn / 2)), scales(size_t(kOut * kIn / 16), 0x30);
      for (size_t i = 0; i < codes.size(); ++i) codes[i] = uint8_t(philox(1, 0, i)[0]);
      backend_->pack_rows(w, 0, kOut, codes, scales);
    } else {
      w.dense = floats({kOut, kIn}, DType::bf16);
    }
    const Tensor x = floats({c.tokens, kIn}, type), y = floats({c.tokens, kOut}, type);
    *elements = double(kOut) * double(kIn) * double(c.tokens);
    return [this, x, y, w, rounding] { backend_->linear(y, x, w, rounding); };
  }

 private:
  std::function<void()> attention(int64_t tokens, DType type, double* elements) {
    const Tensor q = floats({tokens, kHeads, kWidth}, type),
                 out = floats({tokens, kHeads, kWidth}, type);
    const KvView kv{floats({kKeys, kKeyHeads, kWidth}, DType::bf16),
                    floats({kKeys, kKeyHeads, kWidth}, DType::bf16)};
    const Tensor sequences = make_tensor(memory(sizeof(Sequence)), DType::i32, {1, 4});
    const Sequence all{0, int32_t(tokens), 0, int32_t(kKeys)};
    std::memcpy(sequences.data, &all, sizeof all);
    *elements =
        double(kHeads) * kWidth * (double(tokens) * kKeys - double(tokens * (tokens - 1)) / 2);
    return [this, q, out, kv, sequences] { backend_->attention(out, {}, q, kv, sequences); };
  }
  std::byte* memory(size_t bytes) {
    buffers_.push_back(backend_->allocate(bytes, "case"));
    return buffers_.back().data();
  }
  Tensor floats(std::initializer_list<int64_t> shape, DType type) {
    int64_t n = 1;
    for (const int64_t d : shape) n *= d;
    std::byte* const data = memory(size_t(n) * dtype_bytes(type));
    for (int64_t i = 0; i < n; ++i) {
      const float v = float(int(i * 7919 % 255) - 127) / 64;
      if (type == DType::f32) {
        reinterpret_cast<float*>(data)[i] = v;
      } else {
        reinterpret_cast<bf16_t*>(data)[i] = to_bf16(v);
      }
    }
    return make_tensor(data, type, shape);
  }

  std::unique_ptr<Backend> backend_;
  std::vector<Buffer> buffers_;
};

}  // namespace
}  // namespace nibble::bench

int main(int argc, char** argv) {
  using namespace nibble::bench;
  if (argc == 2 && std::string(argv[1]) == "list") {
    for (const Case& c : kCases) std::printf("%s\n", label(c).c_str());
    return 0;
  }
  for (const Case& c : kCases) {
    if (argc != 3 || label(c) != argv[1]) continue;
    Runner runner;
    double elements = 0;
    const auto run = runner.prepare(c, &elements);
    for (int i = std::atoi(argv[2]); i > 0; --i) run();
    std::printf("%.0f %s\n", elements, c.per);
    return 0;
  }
  std::fprintf(stderr, "usage: op_instructions list | CASE REPEATS\n");
  return 2;
}
