// SPDX-License-Identifier: MIT
// Attention on the GPU: microseconds, TFLOP/s and GB/s of decoding, prefill and the gradient at the
// head shape of Qwen3-4B, each checked against a plain double-precision kernel on a few rows. The
// keys and values of decoding rotate through more memory than the cache holds.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <vector>

#include "backends/cuda/device_functions/types.cuh"
#include "backends/cuda/kernels/kernels.h"

namespace nibble::cuda {
namespace {

constexpr int kQHeads = 32, kKvHeads = 8, kWidth = 128, kGroup = kQHeads / kKvHeads;
constexpr double kScale = 0.08838834764831845;  // 1 / sqrt(kWidth)

template <class T>
__global__ void fill_kernel(T* p, int64_t n, uint32_t seed, float scale) {
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n;
       i += int64_t(gridDim.x) * blockDim.x) {
    float sum = 0;
    for (uint32_t j = 0; j < 4; ++j) {
      uint32_t h = uint32_t(i) * 2654435761u + seed * 40503u + j * 97u;
      h = (h ^ (h >> 15)) * 2246822519u;
      h = (h ^ (h >> 13)) * 3266489917u;
      sum += float(h ^ (h >> 16)) * 0x1p-32f - 0.5f;
    }
    p[i] = from_f32<T>(sum * 1.7f * scale);
  }
}

// One block; p is scratch. head rows are contiguous [rows, heads, width].
template <class T, class K>
__global__ void naive_row(double* out, double* p, const T* q, const K* k, const K* v, int visible) {
  const int t = int(threadIdx.x);
  for (int j = t; j < visible; j += int(blockDim.x)) {
    double s = 0;
    for (int d = 0; d < kWidth; ++d) {
      s += double(to_f32(q[d])) * double(to_f32(k[int64_t(j) * kKvHeads * kWidth + d]));
    }
    p[j] = s * kScale;
  }
  __syncthreads();
  double largest = -1e300, total = 0, sum = 0;
  for (int j = 0; j < visible; ++j) largest = max(largest, p[j]);
  for (int j = 0; j < visible; ++j) {
    const double w = exp(p[j] - largest);
    total += w;
    if (t < kWidth) sum += w * double(to_f32(v[int64_t(j) * kKvHeads * kWidth + t]));
  }
  if (t < kWidth) out[t] = sum / total;
}

__device__ double dot(const bf16* a, const bf16* b) {
  double s = 0;
  for (int d = 0; d < kWidth; ++d) s += double(to_f32(a[d])) * double(to_f32(b[d]));
  return s;
}
struct BackData {
  const bf16 *q, *k, *v, *out, *dout;
  const float* lse;
};
// dq of one query, or dk and dv of one key, whose sequence is tokens begin .. end.
__global__ void naive_back(double* dq, double* dk, double* dv, double* p, BackData a, int begin,
                           int end, int token, int head) {
  const int t = int(threadIdx.x);
  const auto q_row = [&](const bf16* x, int n, int h) {
    return x + (int64_t(n) * kQHeads + h) * kWidth;
  };
  const auto kv_row = [&](const bf16* x, int n, int h) {
    return x + (int64_t(n) * kKvHeads + h) * kWidth;
  };
  const auto pair = [&](int query, int key, int h, double& weight, double& ds) {
    const bf16 *q = q_row(a.q, query, h), *dout = q_row(a.dout, query, h);
    weight = exp(dot(q, kv_row(a.k, key, h / kGroup)) * kScale -
                 double(a.lse[int64_t(query) * kQHeads + h]));
    ds = weight * kScale *
         (dot(dout, kv_row(a.v, key, h / kGroup)) - dot(dout, q_row(a.out, query, h)));
  };
  for (int j = begin + t; j <= token; j += int(blockDim.x)) {
    double w;
    pair(token, j, head, w, p[j - begin]);
  }
  __syncthreads();
  if (t < kWidth) {
    double sum = 0;
    for (int j = begin; j <= token; ++j) {
      sum += p[j - begin] * double(to_f32(kv_row(a.k, j, head / kGroup)[t]));
    }
    dq[t] = sum;
  }
  __syncthreads();
  const int items = (end - token) * kGroup, first = head / kGroup * kGroup;
  for (int i = t; i < items; i += int(blockDim.x)) {
    pair(token + i / kGroup, token, first + i % kGroup, p[2 * i], p[2 * i + 1]);
  }
  __syncthreads();
  if (t < kWidth) {
    double sum_k = 0, sum_v = 0;
    for (int i = 0; i < items; ++i) {
      const int query = token + i / kGroup, h = first + i % kGroup;
      sum_v += p[2 * i] * double(to_f32(q_row(a.dout, query, h)[t]));
      sum_k += p[2 * i + 1] * double(to_f32(q_row(a.q, query, h)[t]));
    }
    dk[t] = sum_k, dv[t] = sum_v;
  }
}

class Bench {
 public:
  Bench() : c_(0) {
    NIBBLE_CUDA(cudaMalloc(&p_, size_t(1) << 22));
    NIBBLE_CUDA(cudaMallocManaged(&result_, 3 * kWidth * sizeof(double)));
  }

  template <class K>
  void forward(const char* name, DType cache, const std::vector<Sequence>& sequences) {
    int64_t tokens = 0, slots = 0;
    double pairs = 0, keys = 0;
    for (const Sequence& s : sequences) {
      tokens += s.q_len, slots += s.kv_len, keys += s.kv_len;
      pairs += double(s.q_len) * (s.kv_len - s.q_len) + 0.5 * s.q_len * (s.q_len + 1.0);
    }
    Tensor q = make(DType::bf16, {tokens, kQHeads, kWidth}, 1, 2), out = make_like(q);
    Tensor lse = make(DType::f32, {tokens, kQHeads}, 0, 0), table = upload(sequences);
    const size_t bytes = size_t(slots) * kKvHeads * kWidth * sizeof(K);
    const int copies = int(std::clamp<size_t>((size_t(256) << 20) / bytes / 2, 1, 36));
    std::vector<KvView> kv;
    for (int i = 0; i < copies; ++i) {
      kv.push_back({make(cache, {slots, kKvHeads, kWidth}, 2, 1),
                    make(cache, {slots, kKvHeads, kWidth}, 3, 1)});
    }
    const double us = time(std::max(copies, 8), [&](int i) {
      attention(c_, out, lse, q, kv[size_t(i % copies)], table);
    });
    double worst = 0;
    for (const Sequence& s : sequences) {
      for (int i : {0, s.q_len / 2, s.q_len - 1}) {
        const int head = i * 7 % kQHeads, token = s.q_begin + i;
        naive_row<<<1, 256, 0, c_.stream>>>(
            result_, p_, row<bf16>(q, token, head), row<K>(kv[0].k, s.kv_begin, head / kGroup),
            row<K>(kv[0].v, s.kv_begin, head / kGroup), s.kv_len - s.q_len + i + 1);
        worst = std::max(worst, compare(row<bf16>(out, token, head), result_));
      }
    }
    const double flops = 4.0 * pairs * kQHeads * kWidth;
    const double moved = 2.0 * keys * kKvHeads * kWidth * sizeof(K);
    report(name, us, flops, moved, worst);
    release();
  }

  void backward(const char* name, const std::vector<Sequence>& sequences) {
    int64_t tokens = 0;
    double pairs = 0;
    for (const Sequence& s : sequences) {
      tokens += s.q_len, pairs += 0.5 * s.q_len * (s.q_len + 1.0);
    }
    Tensor q = make(DType::bf16, {tokens, kQHeads, kWidth}, 1, 2), out = make_like(q);
    Tensor dout = make(DType::bf16, {tokens, kQHeads, kWidth}, 4, 1), dq = make_like(q);
    Tensor k = make(DType::bf16, {tokens, kKvHeads, kWidth}, 2, 1), dk = make_like(k);
    Tensor v = make(DType::bf16, {tokens, kKvHeads, kWidth}, 3, 1), dv = make_like(k);
    Tensor lse = make(DType::f32, {tokens, kQHeads}, 0, 0), table = upload(sequences);
    attention(c_, out, lse, q, {k, v}, table);
    const double us = time(4, [&](int) {
      attention_back(c_, dq, dk, dv, dout, out, lse, q, {k, v}, table);
    });
    const BackData data{ptr<bf16>(q),   ptr<bf16>(k),    ptr<bf16>(v),
                        ptr<bf16>(out), ptr<bf16>(dout), ptr<float>(lse)};
    double worst = 0;
    for (const Sequence& s : sequences) {
      for (int i : {1, s.q_len / 2, s.q_len - 2}) {
        const int head = i * 7 % kQHeads, token = s.q_begin + i;
        naive_back<<<1, 256, 0, c_.stream>>>(result_, result_ + kWidth, result_ + 2 * kWidth, p_,
                                             data, s.q_begin, s.q_begin + s.q_len, token, head);
        worst = std::max(worst, compare(row<bf16>(dq, token, head), result_));
        worst = std::max(worst, compare(row<bf16>(dk, token, head / kGroup), result_ + kWidth));
        worst = std::max(worst, compare(row<bf16>(dv, token, head / kGroup), result_ + 2 * kWidth));
      }
    }
    report(name, us, 10.0 * pairs * kQHeads * kWidth, 0, worst);
    release();
  }

  bool good() const { return good_; }

 private:
  Tensor make(DType type, std::initializer_list<int64_t> shape, uint32_t seed, float scale) {
    Tensor t = make_tensor(nullptr, type, shape);
    void* p = nullptr;
    NIBBLE_CUDA(cudaMalloc(&p, t.bytes()));
    memory_.push_back(p);
    t.data = static_cast<std::byte*>(p);
    with_cache_type(type, [&](auto e) {
      using T = decltype(e);
      fill_kernel<<<1024, 256, 0, c_.stream>>>(ptr<T>(t), t.numel(), seed, scale);
    });
    return t;
  }
  Tensor make_like(const Tensor& t) { return make(t.dtype, {t.dim(0), t.dim(1), t.dim(2)}, 0, 0); }
  Tensor upload(const std::vector<Sequence>& sequences) {
    Tensor t = make_tensor(nullptr, DType::i32, {int64_t(sequences.size()), 4});
    void* p = nullptr;
    NIBBLE_CUDA(cudaMalloc(&p, t.bytes()));
    memory_.push_back(p);
    t.data = static_cast<std::byte*>(p);
    NIBBLE_CUDA(cudaMemcpy(p, sequences.data(), t.bytes(), cudaMemcpyHostToDevice));
    return t;
  }
  template <class T>
  static const T* row(const Tensor& t, int64_t token, int64_t head) {
    return ptr<const T>(t) + token * t.row_stride + head * kWidth;
  }
  // Largest difference as a share of the largest value.
  double compare(const bf16* got, const double* want) {
    std::vector<bf16> g(kWidth);
    NIBBLE_CUDA(cudaStreamSynchronize(c_.stream));
    NIBBLE_CUDA(cudaMemcpy(g.data(), got, kWidth * sizeof(bf16), cudaMemcpyDeviceToHost));
    double worst = 0, largest = 0;
    for (int d = 0; d < kWidth; ++d) {
      const double x = double(__bfloat162float(g[size_t(d)]));
      const double off = std::abs(x - want[d]);
      worst = off <= worst ? worst : off;  // keeps a NaN
      largest = std::max(largest, std::abs(want[d]));
    }
    return worst / largest;
  }
  // Microseconds a call, from a graph of `calls` of them; the median of 11.
  double time(int calls, const std::function<void(int)>& op) {
    op(0);
    NIBBLE_CUDA(cudaStreamSynchronize(c_.stream));
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    NIBBLE_CUDA(cudaStreamBeginCapture(c_.stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < calls; ++i) op(i);
    NIBBLE_CUDA(cudaStreamEndCapture(c_.stream, &graph));
    NIBBLE_CUDA(cudaGraphInstantiate(&exec, graph, 0));
    cudaEvent_t begin, end;
    NIBBLE_CUDA(cudaEventCreate(&begin));
    NIBBLE_CUDA(cudaEventCreate(&end));
    std::vector<double> times;
    for (int i = 0; i < 13; ++i) {
      NIBBLE_CUDA(cudaEventRecord(begin, c_.stream));
      NIBBLE_CUDA(cudaGraphLaunch(exec, c_.stream));
      NIBBLE_CUDA(cudaEventRecord(end, c_.stream));
      NIBBLE_CUDA(cudaEventSynchronize(end));
      float ms = 0;
      NIBBLE_CUDA(cudaEventElapsedTime(&ms, begin, end));
      if (i >= 2) times.push_back(1000.0 * double(ms) / calls);
    }
    std::sort(times.begin(), times.end());
    op(0);  // what the check looks at
    NIBBLE_CUDA(cudaEventDestroy(begin));
    NIBBLE_CUDA(cudaEventDestroy(end));
    NIBBLE_CUDA(cudaGraphExecDestroy(exec));
    NIBBLE_CUDA(cudaGraphDestroy(graph));
    return times[times.size() / 2];
  }
  void report(const char* name, double us, double flops, double moved, double worst) {
    // Rounded weights and a rounded result: a few steps of 2^-9 of the largest element.
    const bool ok = worst < 0.02;
    good_ &= ok;
    std::printf("%-28s %9.2f us %7.1f TFLOP/s %7.0f GB/s  off by %.4f %s\n", name, us,
                flops / us * 1e-6, moved / us * 1e-3, worst, ok ? "ok" : "WRONG");
    std::fflush(stdout);
  }
  void release() {
    NIBBLE_CUDA(cudaStreamSynchronize(c_.stream));
    for (void* p : memory_) NIBBLE_CUDA(cudaFree(p));
    memory_.clear();
  }

  Context c_;
  std::vector<void*> memory_;
  double *p_ = nullptr, *result_ = nullptr;
  bool good_ = true;
};

std::vector<Sequence> packed(int count, int q_len, int kv_len) {
  std::vector<Sequence> s;
  for (int i = 0; i < count; ++i) s.push_back({i * q_len, q_len, i * kv_len, kv_len});
  return s;
}

int run() {
  Bench b;
  b.forward<bf16>("decode 1 x 512", DType::bf16, packed(1, 1, 512));
  b.forward<bf16>("decode 1 x 32768", DType::bf16, packed(1, 1, 32768));
  b.forward<bf16>("decode 32 x 512", DType::bf16, packed(32, 1, 512));
  b.forward<f8>("decode 1 x 512, f8", DType::f8_e4m3, packed(1, 1, 512));
  b.forward<f8>("decode 1 x 32768, f8", DType::f8_e4m3, packed(1, 1, 32768));
  b.forward<f8>("decode 32 x 512, f8", DType::f8_e4m3, packed(32, 1, 512));
  b.forward<bf16>("prefill 512", DType::bf16, packed(1, 512, 512));
  b.forward<bf16>("prefill 2048", DType::bf16, packed(1, 2048, 2048));
  b.forward<bf16>("prefill 8192", DType::bf16, packed(1, 8192, 8192));
  b.forward<bf16>("prefill 8 x 2048", DType::bf16, packed(8, 2048, 2048));
  b.forward<f8>("prefill 2048, f8", DType::f8_e4m3, packed(1, 2048, 2048));
  b.forward<bf16>("prefill 512 on 8192", DType::bf16, packed(1, 512, 8704));
  b.backward("gradient 2048", packed(1, 2048, 2048));
  b.backward("gradient 8 x 2048", packed(8, 2048, 2048));
  return b.good() ? 0 : 1;
}

}  // namespace
}  // namespace nibble::cuda

int main() {
  try {
    return nibble::cuda::run();
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
