// SPDX-License-Identifier: MIT
// The five products of a Qwen3-4B token on the GPU: microseconds, and the share of the bandwidth
// and of the bf16 peak measured in the same run. 36 different matrices in turn, in a CUDA graph, as
// in a model; random weights (the time does not depend on their values).
//   cuda_linear_bench [tokens ...]
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "backends/cuda/context.h"
#include "backends/cuda/kernels/kernels.h"
#include "backends/cuda/kernels/linear/blas_gemm.h"
#include "backends/cuda/kernels/linear/linear.h"
#include "core/rng.h"

using namespace nibble;

namespace {

struct Product {
  const char* name;
  int64_t out, in;
  bool swiglu;
};
constexpr Product kProducts[] = {
    {"qkv", 6144, 2560, false},      {"o", 2560, 4096, false},
    {"gate_up", 19456, 2560, false}, {"gate_up+swiglu", 19456, 2560, true},
    {"down", 2560, 9728, false},     {"head", 151936, 2560, false}};
constexpr int kLayers = 36, kSamples = 21;

// Median milliseconds of `work`, which enqueues on the stream, replayed as a graph.
template <class F>
double time_ms(cuda::Context& c, F&& work) {
  work();  // plans are made outside of the recording
  NIBBLE_CUDA(cudaStreamSynchronize(c.stream));
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  NIBBLE_CUDA(cudaStreamBeginCapture(c.stream, cudaStreamCaptureModeThreadLocal));
  work();
  NIBBLE_CUDA(cudaStreamEndCapture(c.stream, &graph));
  NIBBLE_CUDA(cudaGraphInstantiate(&executable, graph, 0));
  cudaEvent_t begin = nullptr, end = nullptr;
  NIBBLE_CUDA(cudaEventCreate(&begin));
  NIBBLE_CUDA(cudaEventCreate(&end));
  std::vector<float> samples;
  for (int i = 0; i < kSamples + 2; ++i) {
    NIBBLE_CUDA(cudaEventRecord(begin, c.stream));
    NIBBLE_CUDA(cudaGraphLaunch(executable, c.stream));
    NIBBLE_CUDA(cudaEventRecord(end, c.stream));
    NIBBLE_CUDA(cudaEventSynchronize(end));
    float ms = 0;
    NIBBLE_CUDA(cudaEventElapsedTime(&ms, begin, end));
    if (i >= 2) samples.push_back(ms);
  }
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  std::nth_element(samples.begin(), samples.begin() + kSamples / 2, samples.end());
  return double(samples[kSamples / 2]);
}

void fill_random(cuda::Context& c, Buffer& b, uint8_t mask) {
  std::vector<uint8_t> host(size_t(4) << 20);
  for (size_t i = 0; i < host.size(); i += 16) {
    const auto r = philox(1, 0, i);
    for (size_t k = 0; k < 16; ++k) host[i + k] = uint8_t(r[k / 4] >> (8 * (k % 4))) & mask;
  }
  for (size_t at = 0; at < b.bytes(); at += host.size()) {
    NIBBLE_CUDA(cudaMemcpyAsync(b.data() + at, host.data(), std::min(host.size(), b.bytes() - at),
                                cudaMemcpyHostToDevice, c.stream));
  }
  NIBBLE_CUDA(cudaStreamSynchronize(c.stream));
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<int64_t> tokens;
  for (int i = 1; i < argc; ++i) tokens.push_back(std::atoll(argv[i]));
  if (tokens.empty()) tokens = {1, 2, 8, 16, 32, 64, 128, 512, 2048};
  const int64_t most = *std::max_element(tokens.begin(), tokens.end());

  cuda::Context c(0);
  Buffer x = c.memory->allocate_device(size_t(most) * 9728 * 2, "tokens");
  Buffer y = c.memory->allocate_device(size_t(most) * 151936 * 2, "results");
  Buffer act = c.memory->allocate_device(size_t(most) * 9728 * 2, "results");
  fill_random(c, x, 0x3f);

  const size_t copied = size_t(1) << 30;
  Buffer big = c.memory->allocate_device(2 * copied, "copy");
  const double copy_ms = time_ms(c, [&] {
    NIBBLE_CUDA(cudaMemcpyAsync(big.data(), big.data() + copied, copied, cudaMemcpyDeviceToDevice,
                                c.stream));
  });
  const double bandwidth = 2.0 * double(copied) / copy_ms / 1e9;  // TB/s
  fill_random(c, big, 0x3f);  // zeros would run at a higher clock
  const int64_t side = 8192;
  const Tensor a = make_tensor(big.data(), DType::bf16, {side, side});
  const Tensor b = make_tensor(big.data() + 2 * side * side, DType::bf16, {side, side});
  const Tensor d = make_tensor(big.data() + 4 * side * side, DType::bf16, {side, side});
  const double gemm_ms = time_ms(c, [&] { cuda::blas_gemm(c, d, a, b); });
  const double peak = 2.0 * double(side) * double(side) * double(side) / gemm_ms / 1e9;  // TFLOP/s
  fmt::print("copy {:.2f} TB/s (read + written), bf16 {}^3 {:.0f} TFLOP/s\n", bandwidth, side,
             peak);

  for (const Product& p : kProducts) {
    const int layers = p.out > 100000 ? 2 : kLayers;
    const size_t bytes = cuda::packed_bytes(p.out, p.in);
    Buffer weights = c.memory->allocate_device(bytes * size_t(layers), "weights");
    fill_random(c, weights, 0x77);  // scales are then at most 0x77: no NaN, none negative
    for (int64_t n : tokens) {
      const double ms =
          time_ms(c,
                  [&] {
                    for (int l = 0; l < layers; ++l) {
                      LinearWeight w;
                      w.out = p.out, w.in = p.in;
                      w.packed = make_tensor(weights.data() + bytes * size_t(l), DType::u8,
                                             {int64_t(bytes)});
                      const Tensor in = make_tensor(x.data(), DType::bf16, {n, p.in});
                      const Tensor out = make_tensor(y.data(), DType::bf16, {n, p.out});
                      if (p.swiglu) {
                        const Tensor half = make_tensor(act.data(), DType::bf16, {n, p.out / 2});
                        cuda::linear_swiglu(c, half, out, in, w, Activations::none);
                      } else {
                        cuda::linear(c, out, in, w, Activations::none);
                      }
                    }
                  }) /
          layers;
      const double flops = 2.0 * double(n) * double(p.out) * double(p.in);
      fmt::print(
          "{:<15} {:>6} x {:<5} n {:>5} {:>9.2f} us  {:>5.1f} % of copy  {:>5.1f} % of peak  {}\n",
          p.name, p.out, p.in, n, ms * 1e3, double(bytes) / ms / 1e9 / bandwidth * 100,
          flops / ms / 1e9 / peak * 100, cuda::linear_kernel_name(c, Activations::none, n));
      std::fflush(stdout);
    }
  }
}
