// SPDX-License-Identifier: MIT
// What a token's result may not depend on, bit for bit: the other tokens of the batch, chunking,
// the thread count.
#include "ops/linear_support.h"

namespace nibble::test {
namespace {

std::vector<uint8_t> row_bytes(const Operand& o, int64_t row) {
  const auto all = o.bytes();
  const size_t n = all.size() / size_t(o.cpu.dim(0));
  return {all.begin() + long(size_t(row) * n), all.begin() + long(size_t(row + 1) * n)};
}

// Every row of a batch of 33 alone and in batches of every smaller size.
void check_batches(Backend& backend, const LinearWeight& w, DType act, Activations mode) {
  Operand x(act, {33, w.in});
  x.normal(1);
  Operand whole(act, {33, w.out});
  backend.linear(whole.cpu, x.cpu, w, mode);
  for (int64_t n = 1; n < 33; n += n < 10 ? 1 : 6) {
    for (int64_t first : {int64_t(0), int64_t(33) - n}) {
      Operand out(act, {n, w.out});
      backend.linear(out.cpu, x.cpu.slice(first, n), w, mode);
      for (int64_t i = 0; i < n; ++i) {
        ASSERT_EQ(row_bytes(out, i), row_bytes(whole, first + i))
            << "row " << first + i << " in " << n;
      }
    }
  }
}

TEST(Invariance, LinearRowsDoNotDependOnTheBatch) {
  Both b;
  const CanonicalNvfp4 c(50, 208, 6, CanonicalNvfp4::Signs::both);
  OwnedWeight packed = pack(*b.cpu, c);
  on_every_target([&] {
    for (DType act : {DType::f32, DType::bf16}) {
      // A GPU chooses its 16-bit kernel by the number of tokens, and has no int8.
      if (testing_cuda() && act != DType::f32) continue;
      for (Activations mode : {Activations::none, Activations::int8, Activations::nvfp4}) {
        if (testing_cuda() && mode == Activations::int8) continue;
        SCOPED_TRACE(activations_name(mode));
        check_batches(*b.cpu, packed.w, act, mode);
      }
      for (DType weight : {DType::f32, DType::bf16}) {
        Operand w(weight, {21, 100});
        w.normal(3);
        check_batches(*b.cpu, dense_weight(w.cpu), act, Activations::none);
      }
    }
  });
}

// Large enough that several token blocks and threads take part.
TEST(Invariance, LinearRowsDoNotDependOnTokenBlocksOrThreads) {
  const CanonicalNvfp4 c(96, 2048, 6);
  std::vector<std::vector<uint8_t>> results[3];
  for (int threads : {1, 2, 3}) {
    const auto backend = make_tested_backend(threads);
    OwnedWeight packed = pack(*backend, c);
    Operand x(DType::f32, {300, 2048}), w(DType::f32, {96, 2048});
    x.normal(1), w.normal(2);
    int m = 0;
    for (int mode = 0; mode < 3; ++mode) {
      Operand out(DType::f32, {300, 96}), one(DType::f32, {1, 96});
      const LinearWeight lw = mode == 2 ? dense_weight(w.cpu) : packed.w;
      const Activations a = mode == 1 ? Activations::int8 : Activations::none;
      backend->linear(out.cpu, x.cpu, lw, a);
      for (int64_t i : {0, 100, 163, 299}) {
        backend->linear(one.cpu, x.cpu.slice(i, 1), lw, a);
        EXPECT_EQ(one.bytes(), row_bytes(out, i)) << i;
      }
      results[m++].push_back(out.bytes());
    }
  }
  for (const auto& r : results) {
    EXPECT_EQ(r[0], r[1]);
    EXPECT_EQ(r[0], r[2]);
  }
}

Operand sequence_table(std::vector<Sequence> sequences) {
  Operand t(DType::i32, {int64_t(sequences.size()), 4});
  t.fill([&](int64_t i) {
    const Sequence& s = sequences[size_t(i / 4)];
    return double(std::array{s.q_begin, s.q_len, s.kv_begin, s.kv_len}[size_t(i % 4)]);
  });
  return t;
}

TEST(Invariance, AttentionWholeChunkedAndOneByOne) {
  constexpr int64_t kTokens = 150;
  on_every_target([&] {
    for (int threads : {1, 2, 3}) {
      const auto backend = make_tested_backend(threads);
      for (const auto& [act, cache] : {std::pair{DType::f32, DType::f32},
                                       {DType::f32, DType::bf16},
                                       {DType::bf16, DType::bf16}}) {
        // A GPU chooses its 16-bit kernel by the number of tokens.
        if (testing_cuda() && act != DType::f32) continue;
        Operand q(act, {kTokens, 6, 32}), k(cache, {kTokens + 9, 2, 32}),
            v(cache, {kTokens + 9, 2, 32});
        q.normal(1), k.normal(2), v.normal(3);
        Operand whole(act, {kTokens, 6, 32}), lse(DType::f32, {kTokens, 6});
        Operand table = sequence_table({{0, int32_t(kTokens), 9, int32_t(kTokens)}});
        backend->attention(whole.cpu, lse.cpu, q.cpu, {k.cpu, v.cpu}, table.cpu);
        for (int32_t chunk : {1, 7, 64}) {
          Operand out(act, {kTokens, 6, 32}), out_lse(DType::f32, {kTokens, 6});
          for (int32_t t = 0; t < kTokens; t += chunk) {
            const int32_t n = std::min(chunk, int32_t(kTokens) - t);
            Operand one = sequence_table({{0, n, 9, t + n}});
            backend->attention(out.cpu.slice(t, n), out_lse.cpu.slice(t, n), q.cpu.slice(t, n),
                               {k.cpu, v.cpu}, one.cpu);
          }
          EXPECT_EQ(out.bytes(), whole.bytes()) << "chunks of " << chunk;
          EXPECT_EQ(out_lse.bytes(), lse.bytes());
        }
      }
    }
  });
}

TEST(Invariance, AttentionOfPackedSequencesIsThatOfEach) {
  const auto backend = make_tested_backend(2);
  Operand q(DType::f32, {40, 4, 16}), k(DType::f32, {200, 2, 16}), v(DType::f32, {200, 2, 16});
  q.normal(1), k.normal(2), v.normal(3);
  const std::vector<Sequence> sequences = {{0, 1, 0, 70}, {1, 30, 70, 30}, {31, 9, 100, 100}};
  Operand together(DType::f32, {40, 4, 16}), alone(DType::f32, {40, 4, 16});
  Operand table = sequence_table(sequences);
  backend->attention(together.cpu, {}, q.cpu, {k.cpu, v.cpu}, table.cpu);
  for (const Sequence& s : sequences) {
    Operand one = sequence_table({s});
    backend->attention(alone.cpu, {}, q.cpu, {k.cpu, v.cpu}, one.cpu);
  }
  EXPECT_EQ(together.bytes(), alone.bytes());
}

TEST(Invariance, RowOpsDoNotDependOnTheBatch) {
  constexpr int64_t kRows = 65, kWidth = 1000;
  on_every_target([&] {
    const auto one_thread = make_tested_backend(1), three = make_tested_backend(3);
    Operand x(DType::f32, {kRows, kWidth}), y(DType::f32, {kRows, kWidth}), w(DType::f32, {kWidth});
    x.normal(1), y.normal(2), w.normal(3);
    Operand a(DType::f32, {kRows, kWidth}), b(DType::f32, {kRows, kWidth});
    one_thread->rms_norm(a.cpu, {}, x.cpu, w.cpu, 1e-6);
    three->rms_norm(b.cpu, {}, x.cpu, w.cpu, 1e-6);
    EXPECT_EQ(a.bytes(), b.bytes());
    one_thread->swiglu(a.cpu, x.cpu, y.cpu);
    three->swiglu(b.cpu, x.cpu, y.cpu);
    EXPECT_EQ(a.bytes(), b.bytes());
  });
}

}  // namespace
}  // namespace nibble::test
