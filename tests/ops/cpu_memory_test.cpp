// SPDX-License-Identifier: MIT
// Memory of the CPU backend: zeroed, aligned, refused with a reason, and none of it in steady
// state.
#include <atomic>
#include <cstdlib>
#include <new>

#include "backends/cpu/memory.h"
#include "core/error.h"
#include "ops/back_support.h"
#include "ops/linear_support.h"

namespace {
std::atomic<uint64_t> heap_allocations{0};
}
// Counts every new of this executable; malloc'd memory underneath is unchanged. Not inlined, or the
// compiler sees free() meet new and warns.
[[gnu::noinline]] void* operator new(size_t n) {
  heap_allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* p = std::malloc(n ? n : 1)) return p;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, size_t) noexcept { std::free(p); }
// std::stable_sort takes its memory from this form, and a sanitizer's own would not be for free()
// to release.
[[gnu::noinline]] void* operator new(size_t n, const std::nothrow_t&) noexcept {
  heap_allocations.fetch_add(1, std::memory_order_relaxed);
  return std::malloc(n ? n : 1);
}
[[gnu::noinline]] void operator delete(void* p, const std::nothrow_t&) noexcept { std::free(p); }

namespace nibble::test {
namespace {

TEST(CpuMemory, IsZeroedAndAligned) {
  const auto backend = make_cpu_backend(1);
  for (size_t n :
       {size_t(1), size_t(100), size_t(1) << 20, (size_t(2) << 20) + 3, size_t(9) << 20}) {
    Buffer b = backend->allocate(n, "test");
    ASSERT_EQ(b.bytes(), n);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(b.data()) % 256, 0u);
    for (size_t i = 0; i < n; ++i) ASSERT_EQ(b.data()[i], std::byte(0));
    std::memset(b.data(), 0xff, n);  // the next one must not see this
  }
  EXPECT_EQ(backend->allocate(0, "nothing").bytes(), 0u);
}

TEST(CpuMemory, RefusalSaysWhatAndHowMuch) {
  const auto backend = make_cpu_backend(1);
  try {
    backend->allocate(size_t(1) << 52, "the weights");
    ADD_FAILURE() << "4 PiB granted";
  } catch (const DeviceError& e) {
    const std::string message = e.what();
    EXPECT_NE(message.find("4096.00 TiB"), std::string::npos) << message;
    EXPECT_NE(message.find("the weights"), std::string::npos) << message;
    EXPECT_NE(message.find("available"), std::string::npos) << message;
  }
}

TEST(CpuMemory, NameTellsTargetAndThreads) {
  EXPECT_EQ(make_cpu_backend(1)->name(), "cpu (" + cpu::active_target() + ", 1 thread)");
  EXPECT_EQ(make_cpu_backend(3)->name(), "cpu (" + cpu::active_target() + ", 3 threads)");
}

TEST(CpuMemory, WideTypesAreRefused) {
  const auto backend = make_cpu_backend(1);
  Operand x(DType::f64, {2, 8});
  EXPECT_THROW(backend->add(x.cpu, x.cpu, x.cpu), InternalError);
}

TEST(CpuMemory, SteadyStateAllocatesNothing) {
  const auto backend = make_cpu_backend(2);
  OwnedWeight packed = pack(*backend, CanonicalNvfp4(128, 256, 1));
  Operand x(DType::bf16, {20, 256}), out(DType::bf16, {20, 128}), w(DType::f32, {256});
  Operand like_out(DType::bf16, {20, 128});
  Operand dense(DType::bf16, {128, 256}), k(DType::bf16, {100, 2, 64}),
      v(DType::bf16, {100, 2, 64});
  Operand attended(DType::bf16, {20, 4, 64}), table(DType::i32, {1, 4}),
      angles(DType::f32, {20, 64}), positions(DType::i32, {20});
  Operand ids(DType::i32, {20}), best(DType::i32, {20}), loss(DType::f32, {20});
  Operand stats(DType::f32, {20, 3}), wide(DType::bf16, {20, 256}), dx(DType::bf16, {20, 256});
  Operand dw(DType::bf16, {256});
  Operand rstd(DType::f32, {20}), rstd_heads(DType::f32, {80}), lse(DType::f32, {20, 4});
  Operand dk(DType::bf16, {20, 2, 64}), dv(DType::bf16, {20, 2, 64});
  Operand packed_table(DType::i32, {2, 4});
  x.normal(1), w.normal(2), dense.normal(3), k.normal(4), v.normal(5), wide.normal(6);
  rstd.normal(7), rstd_heads.normal(8), lse.normal(9), dw.normal(10);
  packed_table.fill([](int64_t i) { return std::array{0, 12, 0, 12, 12, 8, 12, 8}[size_t(i)]; });
  ids.fill([](int64_t i) { return double(i); }),
      positions.fill([](int64_t i) { return double(i); });
  table.fill([](int64_t i) { return std::array{0.0, 20.0, 0.0, 90.0}[size_t(i)]; });
  std::vector<SampleRow> choices(20);
  const LinearWeight dense_w = dense_weight(dense.cpu);
  const Tensor q = x.cpu.split_inner({20, 4, 64});
  const RopeFrequencies turns = turns_of(1e6, angles.cpu);
  Operand bias(DType::bf16, {256}), d_bias(DType::bf16, {256});
  bias.normal(11), d_bias.normal(12);
  const auto step = [&] {
    backend->embed(x.cpu, dense.cpu, ids.cpu);
    backend->rms_norm(x.cpu, {}, x.cpu, w.cpu, 1e-6);
    backend->rope_table(angles.cpu, positions.cpu, turns);
    backend->rope(q, q, angles.cpu, Rotation::forward);
    backend->bias_rope(q, q, bias.cpu, angles.cpu, {20, 1.0f});
    backend->add_bias(q, q, bias.cpu);
    backend->bias_back(d_bias.cpu, x.cpu, Accumulate::yes);
    backend->kv_append({k.cpu, v.cpu}, q.view({40, 2, 64}).slice(0, 20),
                       q.view({40, 2, 64}).slice(20, 20), ids.cpu);
    backend->attention(attended.cpu, {}, q, {k.cpu, v.cpu}, table.cpu);
    for (Activations a : {Activations::none, Activations::int8, Activations::nvfp4}) {
      backend->linear(out.cpu, x.cpu, packed.w, a);
    }
    backend->linear(out.cpu, x.cpu, dense_w, Activations::none);
    backend->swiglu(out.cpu, out.cpu, out.cpu);
    backend->sample(best.cpu, out.cpu, make_tensor(choices.data(), DType::i32, {20, 16}), {},
                    Choice::greedy);
    backend->softmax_stats(stats.cpu, out.cpu, ids.cpu, 0, Accumulate::no);
    backend->cross_entropy(loss.cpu, stats.cpu, ids.cpu);
    backend->cross_entropy_back(out.cpu, out.cpu, stats.cpu, ids.cpu, 0, 0.1);
    backend->divergence(loss.cpu, out.cpu, out.cpu, stats.cpu, like_out.cpu, stats.cpu, 0.1,
                        Accumulate::no);
    backend->l1_loss(loss.cpu, dx.cpu, x.cpu, wide.cpu, ids.cpu, 0.1);
    backend->rms_norm_back(x.cpu, dw.cpu, x.cpu, wide.cpu, rstd.cpu, w.cpu, x.cpu, Accumulate::yes);
    backend->norm_rope_back(q, dw.cpu.slice(0, 64), q, wide.cpu.split_inner({20, 4, 64}),
                            rstd_heads.cpu, w.cpu.slice(0, 64), angles.cpu, Accumulate::yes);
    backend->attention_back(dx.cpu.split_inner({20, 4, 64}), dk.cpu, dv.cpu, attended.cpu,
                            attended.cpu, lse.cpu, q, {k.cpu.slice(0, 20), v.cpu.slice(0, 20)},
                            packed_table.cpu);
    backend->swiglu_back(wide.cpu, x.cpu, dx.cpu, wide.cpu, x.cpu);
    backend->embed_back(dense.cpu, x.cpu, ids.cpu, ids.cpu, {Accumulate::yes, 1, 2});
    backend->scatter_rows(x.cpu, wide.cpu, ids.cpu);
  };
  step();
  const uint64_t memory = cpu::allocation_count(), heap = heap_allocations.load();
  for (int i = 0; i < 10; ++i) step();
  EXPECT_EQ(cpu::allocation_count(), memory);
  EXPECT_EQ(heap_allocations.load(), heap);
}

// Batches of one size, divided into sequences in different ways.
TEST(CpuMemory, OtherSequencesAllocateNothingMore) {
  const auto backend = make_cpu_backend(2);
  Operand q(DType::f32, {600, 2, 16}), k(DType::f32, {600, 1, 16}), lse(DType::f32, {600, 2});
  Operand dq(DType::f32, {600, 2, 16}), dk(DType::f32, {600, 1, 16}), dv(DType::f32, {600, 1, 16});
  q.normal(1), k.normal(2), lse.normal(3);
  const auto step = [&](const std::vector<int32_t>& lengths) {
    const Operand table = packed_sequences(lengths);
    backend->attention_back(dq.cpu, dk.cpu, dv.cpu, q.cpu, q.cpu, lse.cpu, q.cpu, {k.cpu, k.cpu},
                            table.cpu);
  };
  step(std::vector<int32_t>(600, 1));
  const uint64_t memory = cpu::allocation_count();
  step({600});
  step({1, 450, 149});
  step({300, 300});
  EXPECT_EQ(cpu::allocation_count(), memory);
}

}  // namespace
}  // namespace nibble::test
