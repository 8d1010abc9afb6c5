// SPDX-License-Identifier: MIT
// Times the CPU backend's ops at the shapes of a 4B Qwen3: bytes and flops each must move, and its
// share of the read bandwidth and the fp32 FMA rate measured in the same run.
//
//   ops_bench [--threads N] [--target NAME] [--samples N] [--only TEXT] [--clock wall|cpu]
#include "backends/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops_bench.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace nibble::bench::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Sums `n` bytes (a multiple of 1024) with eight independent vectors.
uint64_t read_bytes(const uint8_t* p, int64_t n) {
  const hn::ScalableTag<uint64_t> d;
  const int64_t step = int64_t(hn::Lanes(d)) * 8;
  auto a = hn::Zero(d), b = a, c = a, e = a;
  for (int64_t i = 0; i < n; i += 4 * step) {
    a = hn::Xor(a, hn::LoadU(d, reinterpret_cast<const uint64_t*>(p + i)));
    b = hn::Xor(b, hn::LoadU(d, reinterpret_cast<const uint64_t*>(p + i + step)));
    c = hn::Xor(c, hn::LoadU(d, reinterpret_cast<const uint64_t*>(p + i + 2 * step)));
    e = hn::Xor(e, hn::LoadU(d, reinterpret_cast<const uint64_t*>(p + i + 3 * step)));
  }
  return hn::GetLane(hn::Xor(hn::Xor(a, b), hn::Xor(c, e)));
}

// 12 independent multiply-add chains in registers; returns the flops done.
double multiply_adds(int64_t rounds, float* sink) {
  const hn::ScalableTag<float> d;
  const auto x = hn::Set(d, 1.0000001f), y = hn::Set(d, 1e-9f);
  // Different starts, or the compiler keeps one chain for all.
  const auto from = [&](float v) HWY_ATTR { return hn::Set(d, v); };
  auto a0 = from(1), a1 = from(2), a2 = from(3), a3 = from(4), a4 = from(5), a5 = from(6);
  auto a6 = from(7), a7 = from(8), a8 = from(9), a9 = from(10), a10 = from(11), a11 = from(12);
  for (int64_t i = 0; i < rounds; ++i) {
    a0 = hn::MulAdd(a0, x, y), a1 = hn::MulAdd(a1, x, y), a2 = hn::MulAdd(a2, x, y);
    a3 = hn::MulAdd(a3, x, y), a4 = hn::MulAdd(a4, x, y), a5 = hn::MulAdd(a5, x, y);
    a6 = hn::MulAdd(a6, x, y), a7 = hn::MulAdd(a7, x, y), a8 = hn::MulAdd(a8, x, y);
    a9 = hn::MulAdd(a9, x, y), a10 = hn::MulAdd(a10, x, y), a11 = hn::MulAdd(a11, x, y);
  }
  const auto s = hn::Add(
      hn::Add(hn::Add(hn::Add(a0, a1), hn::Add(a2, a3)), hn::Add(hn::Add(a4, a5), hn::Add(a6, a7))),
      hn::Add(hn::Add(a8, a9), hn::Add(a10, a11)));
  *sink = hn::GetLane(s);
  return double(rounds) * 12 * 2 * double(hn::Lanes(d));
}

}  // namespace nibble::bench::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <functional>
#include <string>
#include <vector>

#include "backends/cpu/cpu_backend.h"
#include "backends/cpu/simd/target_control.h"
#include "core/half.h"
#include "core/rng.h"
#include "core/thread_pool.h"

namespace nibble::bench {

HWY_EXPORT(read_bytes);
HWY_EXPORT(multiply_adds);

namespace {

// Wall time, or this process's processor time per thread: on a machine that is busy with other
// things the latter still says what a kernel costs.
enum class Clock { wall, cpu };
Clock clock_used = Clock::wall;
int clock_threads = 1;
double seconds_now() {
  timespec t;
  clock_gettime(clock_used == Clock::wall ? CLOCK_MONOTONIC : CLOCK_PROCESS_CPUTIME_ID, &t);
  const double s = double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
  return clock_used == Clock::wall ? s : s / clock_threads;
}

struct Timing {
  double p10, median, p90;
};
Timing time_samples(int samples, const std::function<void()>& f) {
  f();
  f();
  std::vector<double> t;
  for (int i = 0; i < samples; ++i) {
    const double begin = seconds_now();
    f();
    t.push_back(seconds_now() - begin);
  }
  std::sort(t.begin(), t.end());
  return {t[t.size() / 10], t[t.size() / 2], t[t.size() * 9 / 10]};
}

struct Options {
  int threads = default_thread_count(), samples = 21;
  std::string target, only;
};

class Bench {
 public:
  explicit Bench(const Options& o)
      : o_(o), pool_(o.threads), backend_(make_cpu_backend(o.threads)) {}

  void run() {
    std::printf("%s, %d samples\n", backend_->name().c_str(), o_.samples);
    measure_peaks();
    std::printf("\n%-34s %10s %10s | %9s %9s %9s | %7s %6s | %8s %6s\n", "op", "MB", "Mflop",
                "p10 us", "median", "p90", "GB/s", "of bw", "Gflop/s", "of fma");
    if (wants("linear")) linears();
    if (wants("train")) training();
    others();
    gradients();
    optimizer();
  }

 private:
  void measure_peaks() {
    constexpr int64_t kPiece = 1 << 20, kPieces = 256;
    Buffer b = backend_->allocate(size_t(kPiece * kPieces), "bandwidth probe");
    std::memset(b.data(), 1, b.bytes());
    std::atomic<uint64_t> sink{0};
    const Timing read = time_samples(o_.samples, [&] {
      pool_.parallel_for(kPieces, 4, [&](int64_t begin, int64_t end, int) {
        sink += HWY_DYNAMIC_DISPATCH(read_bytes)(
            reinterpret_cast<const uint8_t*>(b.data()) + begin * kPiece, (end - begin) * kPiece);
      });
    });
    bandwidth_ = double(kPiece * kPieces) / read.median;
    std::vector<float> sinks(size_t(o_.threads) * 16);
    double flops = 0;
    const Timing fma = time_samples(o_.samples, [&] {
      std::atomic<double> done{0};
      pool_.parallel_for(8 * o_.threads, 1, [&](int64_t, int64_t, int thread) {
        const double f = HWY_DYNAMIC_DISPATCH(multiply_adds)(100000, &sinks[size_t(thread) * 16]);
        double old = done.load();
        while (!done.compare_exchange_weak(old, old + f)) {
        }
      });
      flops = done;
    });
    fma_ = flops / fma.median;
    std::printf(
        "read bandwidth %.2f GB/s (p10 %.2f, p90 %.2f), fp32 FMA %.1f Gflop/s (%.1f, %.1f)\n",
        bandwidth_ / 1e9, double(kPiece * kPieces) / read.p90 / 1e9,
        double(kPiece * kPieces) / read.p10 / 1e9, fma_ / 1e9, flops / fma.p90 / 1e9,
        flops / fma.p10 / 1e9);
  }

  // Rows of a section whose names begin with `section`.
  bool wants(const std::string& section) const {
    return o_.only.find(section) != std::string::npos || o_.only.empty();
  }
  double row(const std::string& name, double bytes, double flops, const std::function<void()>& f) {
    if (name.find(o_.only) == std::string::npos) return 0;
    const Timing t = time_samples(o_.samples, f);
    std::printf("%-34s %10.3f %10.2f | %9.1f %9.1f %9.1f | %7.2f %5.0f%% | %8.1f %5.0f%%\n",
                name.c_str(), bytes / 1e6, flops / 1e6, t.p10 * 1e6, t.median * 1e6, t.p90 * 1e6,
                bytes / t.median / 1e9, 100 * bytes / t.median / bandwidth_, flops / t.median / 1e9,
                100 * flops / t.median / fma_);
    std::fflush(stdout);
    return t.median;
  }

  struct Weight {
    Buffer memory;
    LinearWeight w;
  };
  Weight random_weight(int64_t out, int64_t in) {
    Weight r;
    r.w.out = out;
    r.w.in = in;
    r.memory = backend_->allocate(backend_->packed_bytes(out, in), "weight");
    r.w.packed = make_tensor(r.memory.data(), DType::u8, {int64_t(r.memory.bytes())});
    std::vector<uint8_t> codes(size_t(64 * in / 2)), scales(size_t(64 * in / 16), 0x30);
    for (size_t i = 0; i < codes.size(); ++i) codes[i] = uint8_t(philox(1, 0, i)[0]);
    for (int64_t row = 0; row < out; row += 64) {
      const int64_t n = std::min<int64_t>(64, out - row);
      backend_->pack_rows(r.w, row, n, {codes.data(), size_t(n * in / 2)},
                          {scales.data(), size_t(n * in / 16)});
    }
    return r;
  }
  Buffer random_floats(int64_t n, DType type = DType::f32) {
    Buffer b = backend_->allocate(size_t(n) * 4, "activations");
    for (int64_t i = 0; i < n; ++i) {
      const float v = float(normal_pair(philox(2, 0, uint64_t(i)))[0]);
      if (type == DType::f32) {
        reinterpret_cast<float*>(b.data())[i] = v;
      } else {
        reinterpret_cast<bf16_t*>(b.data())[i] = to_bf16(v);
      }
    }
    return b;
  }

  // Four layers (230 MB) in turn, so that no cache of a desktop or a server slice holds them.
  void linears() {
    struct Kind {
      const char* name;
      int64_t out, in;
    };
    const Kind kinds[] = {
        {"qkv", 6144, 2560}, {"o", 2560, 4096}, {"gate_up", 19456, 2560}, {"down", 2560, 9728}};
    constexpr int kLayers = 4;
    std::vector<std::vector<Weight>> layers(kLayers);
    double layer_weights = 0;
    for (auto& layer : layers) {
      for (const Kind& k : kinds) layer.push_back(random_weight(k.out, k.in));
    }
    for (const Kind& k : kinds) layer_weights += double(k.out) * double(k.in);
    Weight head = random_weight(151936, 2560);
    constexpr int64_t kMax = 256;
    Buffer x = random_floats(kMax * 9728),
           y = random_floats(std::max<int64_t>(kMax * 19456, 151936));
    const auto call = [&](const Weight& w, int64_t n, Activations a) {
      backend_->linear(make_tensor(y.data(), DType::f32, {n, w.w.out}),
                       make_tensor(x.data(), DType::f32, {n, w.w.in}), w.w, a);
    };
    for (Activations a : {Activations::int8, Activations::none}) {
      const std::string mode = a == Activations::int8 ? "int8 " : "f32 ";
      const double head_s = row("linear " + mode + "head n=1", double(head.memory.bytes()),
                                2.0 * 151936 * 2560, [&] { call(head, 1, a); });
      for (int64_t n : {1, 2, 4, 8, 16, 64, 256}) {
        if (a == Activations::none && n > 64) continue;
        double bytes = 0;
        for (const Weight& w : layers[0]) bytes += double(w.memory.bytes());
        for (size_t k = 0; k < layers[0].size(); ++k) {
          if (n != 1 && n != 64) continue;
          size_t l = 0;
          row("linear " + mode + kinds[k].name + " n=" + std::to_string(n),
              double(layers[0][k].memory.bytes()),
              2.0 * double(n) * double(kinds[k].out) * double(kinds[k].in),
              [&] { call(layers[l++ % kLayers][k], n, a); });
        }
        size_t l = 0;
        const double s = row("linear " + mode + "layer n=" + std::to_string(n), bytes,
                             2.0 * double(n) * layer_weights, [&] {
                               for (const Weight& w : layers[l % kLayers]) call(w, n, a);
                               ++l;
                             });
        if (s > 0) {
          std::printf("  -> linears of 36 layers%s: %.2f tok/s\n",
                      n == 1 && head_s > 0 ? " and head" : "",
                      double(n) / (36 * s + (n == 1 ? head_s : 0)));
        }
      }
    }
    Buffer dense_memory = backend_->allocate(size_t(9728) * 2560 * 2, "dense weight");
    std::memset(dense_memory.data(), 0x3c, dense_memory.bytes());  // touch every page
    LinearWeight dense;
    dense.out = 9728;
    dense.in = 2560;
    dense.dense = make_tensor(dense_memory.data(), DType::bf16, {9728, 2560});
    for (int64_t n : {1, 16, 64}) {
      row("linear bf16 dense n=" + std::to_string(n), double(dense_memory.bytes()),
          2.0 * double(n) * 9728 * 2560, [&] {
            backend_->linear(make_tensor(y.data(), DType::f32, {n, 9728}),
                             make_tensor(x.data(), DType::f32, {n, 2560}), dense,
                             Activations::none);
          });
    }
  }

  // Linear layers as training calls them: a model of width 320 and one of 1024.
  void training() {
    struct Kind {
      const char* name;
      int64_t n, out, in;
    };
    const Kind kinds[] = {{"320 qkv", 512, 640, 320},         {"320 gate_up", 512, 1792, 320},
                          {"320 down", 512, 320, 896},        {"320 gate_up", 2048, 1792, 320},
                          {"320 down", 2048, 320, 896},       {"320 head", 2048, 4096, 320},
                          {"1024 qkv", 1024, 4096, 1024},     {"1024 o", 1024, 1024, 2048},
                          {"1024 gate_up", 1024, 6144, 1024}, {"1024 down", 1024, 1024, 3072}};
    for (const Kind& k : kinds) {
      Weight w = random_weight(k.out, k.in);
      Buffer matrix = random_floats(k.out * k.in, DType::bf16);
      LinearWeight dense;
      dense.out = k.out;
      dense.in = k.in;
      dense.dense = make_tensor(matrix.data(), DType::bf16, {k.out, k.in});
      const double flops = 2.0 * double(k.n) * double(k.out) * double(k.in);
      const double acts = double(k.n * (k.in + k.out)), weights = double(k.out * k.in);
      const std::string tail = std::string(k.name) + " n=" + std::to_string(k.n);
      for (DType t : {DType::f32, DType::bf16}) {
        Buffer x = random_floats(k.n * k.in, t), y = random_floats(k.n * k.out, t),
               g = random_floats(k.out * k.in, t);
        const Tensor xt = make_tensor(x.data(), t, {k.n, k.in});
        const Tensor yt = make_tensor(y.data(), t, {k.n, k.out});
        const std::string type = std::string(dtype_name(t)) + " ";
        const double bytes = double(dtype_bytes(t)) * acts;
        row("train fwd " + type + tail, bytes + weights * 9 / 16, flops,
            [&] { backend_->linear(yt, xt, w.w, Activations::none); });
        row("train fwd dense " + type + tail, bytes + weights * 2, flops,
            [&] { backend_->linear(yt, xt, dense, Activations::none); });
        row("train dgrad " + type + tail, bytes + weights * 9 / 16, flops,
            [&] { backend_->linear_dgrad(xt, yt, w.w, Accumulate::no); });
        row("train dgrad dense " + type + tail, bytes + weights * 2, flops,
            [&] { backend_->linear_dgrad(xt, yt, dense, Accumulate::no); });
        const Tensor dw = make_tensor(g.data(), t, {k.out, k.in});
        row("train wgrad " + type + tail, bytes + weights * double(dtype_bytes(t)), flops,
            [&] { backend_->linear_wgrad(dw, yt, xt, {}); });
        row("train wgrad+ " + type + tail, bytes + 2 * weights * double(dtype_bytes(t)), flops,
            [&] {
              backend_->linear_wgrad(dw, yt, xt, {Accumulate::yes, 1, 2});
            });
      }
      row("train quantize_rows bf16 " + tail, weights * (2 + 9.0 / 16), 0,
          [&] { backend_->quantize_rows(w.w, 0, dense.dense, ScaleRule::four_over_six); });
    }
  }

  void others() {
    constexpr int64_t kC = 2560, kF = 9728, kHq = 32, kHkv = 8, kD = 128, kV = 151936,
                      kContext = 32768;
    Buffer a = random_floats(512 * kF), b = random_floats(512 * kF), c = random_floats(512 * kF),
           w = random_floats(kC);
    Buffer logits = random_floats(4 * kV),
           cache = backend_->allocate(size_t(2 * kContext * kHkv * kD) * 2, "cache");
    std::memset(cache.data(), 0x3c, cache.bytes());  // touch every page
    Buffer angles = random_floats(512 * kD);
    std::vector<int32_t> ids(512);
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = int32_t(i);
    const auto f32 = [](Buffer& m, std::initializer_list<int64_t> s) {
      return make_tensor(m.data(), DType::f32, s);
    };
    const KvView kv{
        make_tensor(cache.data(), DType::bf16, {kContext, kHkv, kD}),
        make_tensor(cache.data() + kContext * kHkv * kD * 2, DType::bf16, {kContext, kHkv, kD})};
    for (int64_t n : {int64_t(1), int64_t(64), int64_t(512)}) {
      const std::string at = " n=" + std::to_string(n);
      const double nc = double(n * kC), nf = double(n * kF), nq = double(n * kHq * kD);
      row("rms_norm" + at, 8 * nc, 4 * nc, [&] {
        backend_->rms_norm(f32(b, {n, kC}), {}, f32(a, {n, kC}), f32(w, {kC}), 1e-6);
      });
      row("add_rms_norm" + at, 16 * nc, 5 * nc, [&] {
        backend_->add_rms_norm(f32(c, {n, kC}), {}, f32(b, {n, kC}), f32(a, {n, kC}),
                               f32(b, {n, kC}), f32(w, {kC}), 1e-6);
      });
      row("norm_rope" + at, 8 * nq, 10 * nq, [&] {
        backend_->norm_rope(f32(b, {n, kHq, kD}), {}, f32(a, {n, kHq, kD}), f32(w, {kD}),
                            f32(angles, {n, kD}), 1e-6);
      });
      row("swiglu" + at, 12 * nf, 20 * nf, [&] {
        backend_->swiglu(f32(c, {n, kF}), f32(a, {n, kF}), f32(b, {n, kF}));
      });
      row("add" + at, 12 * nc, nc, [&] {
        backend_->add(f32(c, {n, kC}), f32(a, {n, kC}), f32(b, {n, kC}));
      });
      row("kv_append" + at, double(n * kHkv * kD) * 12, 0, [&] {
        backend_->kv_append(kv, f32(a, {n, kHkv, kD}), f32(b, {n, kHkv, kD}),
                            make_tensor(ids.data(), DType::i32, {n}));
      });
    }
    const auto attend = [&](int64_t n, int64_t context) {
      Sequence s{0, int32_t(n), 0, int32_t(context)};
      const double pairs = double(n) * double(context) - double(n) * double(n - 1) / 2;
      row("attention n=" + std::to_string(n) + " keys=" + std::to_string(context),
          double(context * kHkv * kD) * 4 + double(n * kHq * kD) * 8, pairs * kHq * kD * 4, [&] {
            backend_->attention(f32(b, {n, kHq, kD}), {}, f32(a, {n, kHq, kD}), kv,
                                make_tensor(&s, DType::i32, {1, 4}));
          });
    };
    attend(1, 64), attend(1, 512), attend(1, 4096), attend(1, 32768);
    attend(64, 64), attend(512, 512), attend(64, 4096);
    std::vector<int32_t> out(4), targets(4, 5);
    SampleRow greedy;
    row("sample n=1, greedy", 4.0 * kV, kV, [&] {
      backend_->sample(make_tensor(out.data(), DType::i32, {1}), f32(logits, {1, kV}),
                       make_tensor(&greedy, DType::i32, {1, 16}), {}, Choice::greedy);
    });
    row("cross_entropy n=4", 16.0 * kV, 15.0 * 4 * kV, [&] {
      const Tensor ids4 = make_tensor(targets.data(), DType::i32, {4}), stats = f32(w, {4, 3});
      backend_->softmax_stats(stats, f32(logits, {4, kV}), ids4, 0, Accumulate::no);
      backend_->cross_entropy(f32(c, {4}), stats, ids4);
    });
  }

  // One parameter of the 4B shape with bf16 gradients. Bytes: gradient, master and moments, the
  // latter two both ways, and the packed copy.
  void optimizer() {
    constexpr int64_t kRows = 4096, kCols = 2560, kN = kRows * kCols;
    Buffer master = random_floats(kN), grad = random_floats(kN, DType::bf16);
    Weight w = random_weight(kRows, kCols);
    double sum = 0;
    row("sum_squares bf16 10M", 2.0 * kN, 2.0 * kN, [&] {
      backend_->sum_squares(make_tensor(&sum, DType::f64, {1}),
                            make_tensor(grad.data(), DType::bf16, {kN}));
    });
    const auto step = [&](DType type, MomentFormat format, const LinearWeight* packed) {
      Buffer m = backend_->allocate(moment_bytes(format, kN), "m");
      Buffer v = backend_->allocate(moment_bytes(format, kN), "v");
      AdamwStep s;
      s.lr = 1e-4f;
      const double moments = 4 * double(m.bytes());
      const std::string name = "adamw_step " + std::string(moment_format_name(format)) + " " +
                               std::string(dtype_name(type)) + (packed ? " nvfp4 10M" : " 10M");
      row(name, kN * (2.0 + 2.0 * double(dtype_bytes(type)) + (packed ? 9.0 / 16 : 0)) + moments,
          20.0 * kN, [&] {
            ++s.stream;
            backend_->adamw_step(make_tensor(master.data(), type, {kN}),
                                 make_tensor(grad.data(), DType::bf16, {kN}),
                                 make_tensor(m.data(), DType::u8, {int64_t(m.bytes())}),
                                 make_tensor(v.data(), DType::u8, {int64_t(v.bytes())}), format, 0,
                                 kN, s, {packed, 0, ScaleRule::four_over_six});
          });
    };
    step(DType::f32, MomentFormat::f32, nullptr);
    auto* short_master = reinterpret_cast<bf16_t*>(master.data());
    for (int64_t i = 0; i < kN; ++i) {
      short_master[i] = to_bf16(0.02f * float(normal_pair(philox(3, 0, uint64_t(i)))[0]));
    }
    step(DType::bf16, MomentFormat::bf16, &w.w);
    step(DType::bf16, MomentFormat::int8, nullptr);
    step(DType::bf16, MomentFormat::int8, &w.w);
  }

  // Loss and gradients as training calls them, in f32; attention also at a small model's heads.
  void gradients() {
    constexpr int64_t kN = 512, kC = 2560, kF = 9728, kHq = 32, kD = 128, kV = 151936;
    Buffer a = random_floats(kN * kF), b = random_floats(kN * kF), c = random_floats(kN * kF);
    Buffer d = random_floats(kN * kF), e = random_floats(kN * kF), w = random_floats(kC);
    Buffer rstd = random_floats(kN * kHq), dw = random_floats(kC), angles = random_floats(kN * kD);
    const auto f32 = [](Buffer& m, std::initializer_list<int64_t> s) {
      return make_tensor(m.data(), DType::f32, s);
    };
    const double nc = double(kN * kC), nq = double(kN * kHq * kD), nf = double(kN * kF);
    row("rms_norm_back n=512", 16 * nc, 11 * nc, [&] {
      backend_->rms_norm_back(f32(c, {kN, kC}), f32(dw, {kC}), f32(a, {kN, kC}), f32(b, {kN, kC}),
                              f32(rstd, {kN}), f32(w, {kC}), f32(d, {kN, kC}), Accumulate::yes);
    });
    row("norm_rope_back n=512", 12 * nq, 16 * nq, [&] {
      backend_->norm_rope_back(f32(c, {kN, kHq, kD}), f32(dw, {kD}), f32(a, {kN, kHq, kD}),
                               f32(b, {kN, kHq, kD}), f32(rstd, {kN * kHq}), f32(w, {kD}),
                               f32(angles, {kN, kD}), Accumulate::yes);
    });
    row("swiglu_back n=512", 20 * nf, 30 * nf, [&] {
      backend_->swiglu_back(f32(d, {kN, kF}), f32(e, {kN, kF}), f32(a, {kN, kF}), f32(b, {kN, kF}),
                            f32(c, {kN, kF}));
    });
    constexpr int64_t kRows = 32;  // of logits
    const double nv = double(kRows * kV);
    std::vector<int32_t> targets(kRows, 5), ids(kN);
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = int32_t(i);
    const Tensor wanted = make_tensor(targets.data(), DType::i32, {kRows});
    const Tensor stats = f32(rstd, {kRows, 3});
    row("softmax_stats n=32", 4 * nv, 15 * nv, [&] {
      backend_->softmax_stats(stats, f32(a, {kRows, kV}), wanted, 0, Accumulate::no);
    });
    row("cross_entropy_back n=32", 8 * nv, 15 * nv, [&] {
      backend_->cross_entropy_back(f32(b, {kRows, kV}), f32(a, {kRows, kV}), stats, wanted, 0, 0.5);
    });
    row("divergence n=32", 12 * nv, 35 * nv, [&] {
      backend_->divergence(f32(w, {kRows}), f32(b, {kRows, kV}), f32(a, {kRows, kV}), stats,
                           f32(a, {kRows, kV}), stats, 0.5, Accumulate::no);
    });
    const Tensor order = make_tensor(ids.data(), DType::i32, {kN});
    row("embed_back+ bf16 n=512", 8 * nc, nc, [&] {
      backend_->embed_back(make_tensor(c.data(), DType::bf16, {kN, kC}), f32(a, {kN, kC}), order,
                           order, {Accumulate::yes, 1, 2});
    });
    const auto attend = [&](int64_t n, int64_t hq, int64_t hkv, int64_t width) {
      const int64_t nq = n * hq * width, nk = n * hkv * width;
      Buffer q = random_floats(nq), k = random_floats(nk), v = random_floats(nk);
      Buffer dq = random_floats(nq), dk = random_floats(nk), dv = random_floats(nk);
      Buffer out = random_floats(nq), dout = random_floats(nq), lse = random_floats(n * hq);
      Sequence s{0, int32_t(n), 0, int32_t(n)};
      const Tensor table = make_tensor(&s, DType::i32, {1, 4});
      const KvView kv{f32(k, {n, hkv, width}), f32(v, {n, hkv, width})};
      backend_->attention(f32(out, {n, hq, width}), f32(lse, {n, hq}), f32(q, {n, hq, width}), kv,
                          table);
      const double pairs = double(n) * double(n + 1) / 2;
      row("attention_back n=" + std::to_string(n) + " " + std::to_string(hq) + "/" +
              std::to_string(hkv) + " x " + std::to_string(width),
          4.0 * double(4 * nq + 4 * nk), pairs * double(hq * width) * 10, [&] {
            backend_->attention_back(f32(dq, {n, hq, width}), f32(dk, {n, hkv, width}),
                                     f32(dv, {n, hkv, width}), f32(dout, {n, hq, width}),
                                     f32(out, {n, hq, width}), f32(lse, {n, hq}),
                                     f32(q, {n, hq, width}), kv, table);
          });
    };
    attend(64, 32, 8, 128), attend(512, 32, 8, 128), attend(2048, 32, 8, 128);
    attend(64, 4, 2, 64), attend(512, 4, 2, 64), attend(2048, 4, 2, 64);
  }

  Options o_;
  ThreadPool pool_;
  std::unique_ptr<Backend> backend_;
  double bandwidth_ = 0, fma_ = 0;
};

}  // namespace
}  // namespace nibble::bench

int main(int argc, char** argv) {
  nibble::bench::Options o;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string key = argv[i], value = argv[i + 1];
    if (key == "--threads")
      o.threads = std::stoi(value);
    else if (key == "--samples")
      o.samples = std::max(3, std::stoi(value));
    else if (key == "--target")
      o.target = value;
    else if (key == "--clock")
      nibble::bench::clock_used =
          value == "cpu" ? nibble::bench::Clock::cpu : nibble::bench::Clock::wall;
    else if (key == "--only")
      o.only = value;
    else
      return std::fprintf(stderr, "unknown option %s\n", argv[i]), 2;
  }
  nibble::bench::clock_threads = o.threads;
  if (!o.target.empty()) nibble::cpu::select_target(o.target);
  nibble::bench::Bench(o).run();
  return 0;
}
#endif  // HWY_ONCE
