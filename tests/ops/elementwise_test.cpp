// SPDX-License-Identifier: MIT
// embed, gather_rows, kv_append, add, swiglu and copy against the reference.
#include "ops/op_support.h"

namespace nibble::test {
namespace {

struct Shape {
  int64_t n, c, padding;
};
constexpr Shape kShapes[] = {{1, 1, 0}, {3, 16, 5}, {2, 37, 3}, {5, 128, 0}, {33, 640, 7}};

Operand indices(int64_t n, int64_t below, uint64_t seed) {
  Operand ids(DType::i32, {n});
  ids.fill([=](int64_t i) { return double(philox(seed, 1, uint64_t(i))[0] % uint64_t(below)); });
  return ids;
}

TEST(Elementwise, EmbedCopiesRowsOfEveryTableType) {
  Both b;
  on_every_target_and_type([&](DType act) {
    for (DType table_type : kActTypes) {
      for (const Shape& s : kShapes) {
        Operand table(table_type, {11, s.c}), out(act, {s.n, s.c}, s.padding);
        table.normal(1);
        Operand ids = indices(s.n, 11, 2);
        b.cpu->embed(out.cpu, table.cpu, ids.cpu);
        b.reference().embed(out.ref, table.ref, ids.ref);
        expect_relative(out, 0, "embed");
      }
    }
  });
}

TEST(Elementwise, GatherRows) {
  Both b;
  on_every_target_and_type([&](DType act) {
    for (const Shape& s : kShapes) {
      Operand x(act, {7, s.c}, s.padding), out(act, {s.n, s.c}, 2);
      x.normal(3);
      Operand rows = indices(s.n, 7, 4);
      b.cpu->gather_rows(out.cpu, x.cpu, rows.cpu);
      b.reference().gather_rows(out.ref, x.ref, rows.ref);
      expect_relative(out, 0, "gather_rows");
    }
  });
}

TEST(Elementwise, KvAppendConvertsToTheCacheType) {
  Both b;
  on_every_target_and_type([&](DType act) {
    for (DType cache : kActTypes) {
      for (int64_t d : {16, 30, 128}) {
        Operand k(act, {3, 2, d}, 6), v(act, {3, 2, d}, 6), slots(DType::i32, {3});
        k.normal(5), v.normal(6);
        slots.fill([](int64_t i) { return double((i * 4 + 1) % 9); });
        Operand ck(cache, {9, 2, d}, 4), cv(cache, {9, 2, d}, 4);
        ck.fill([](int64_t) { return 0.0; }), cv.fill([](int64_t) { return 0.0; });
        b.cpu->kv_append({ck.cpu, cv.cpu}, k.cpu, v.cpu, slots.cpu);
        b.reference().kv_append({ck.ref, cv.ref}, k.ref, v.ref, slots.ref);
        expect_relative(ck, 0, "k");
        expect_relative(cv, 0, "v");
      }
    }
  });
}

// Plain e4m3: to nearest even, saturating, NaN stays one.
TEST(Elementwise, KvAppendToAnFp8CacheFollowsTheCodec) {
  Both b;
  on_every_target_and_type([&](DType act) {
    for (int64_t width : {4, 20, 128}) {
      Operand k(act, {5, 2, width}, 3), v(act, {5, 2, width});
      k.fill([](int64_t i) { return std::ldexp(1 + double(i % 33) / 32, int(i % 21) - 11); });
      v.normal(1, 0.02);
      if (act == DType::f32) v.cpu.as<float>()[1] = NAN;
      Operand ck(DType::f8_e4m3, {9, 2, width}, 8), cv(DType::f8_e4m3, {9, 2, width}, 8);
      Operand slots(DType::i32, {5});
      slots.fill([](int64_t i) { return double((i * 2 + 3) % 9); });
      b.cpu->kv_append({ck.cpu, cv.cpu}, k.cpu, v.cpu, slots.cpu);
      for (int64_t n = 0; n < 5; ++n) {
        const int64_t slot = (n * 2 + 3) % 9;
        for (int64_t i = 0; i < 2 * width; ++i) {
          ASSERT_EQ(f8_element(ck.cpu, slot, i), e4m3_encode(float(read_element(k.cpu, n, i))));
          ASSERT_EQ(f8_element(cv.cpu, slot, i), e4m3_encode(float(read_element(v.cpu, n, i))));
        }
      }
      EXPECT_TRUE(ck.intact() && cv.intact());
    }
  });
}

TEST(Elementwise, KvAppendLeavesTheViewsOwnMemoryAlone) {
  Both b;
  Operand k(DType::f32, {2, 1, 16}), v(DType::f32, {2, 1, 16}), slots(DType::i32, {2});
  k.normal(1), v.normal(2);
  slots.fill([](int64_t i) { return double(1 - i); });  // would swap the rows
  const auto before = k.bytes();
  b.cpu->kv_append({k.cpu, v.cpu}, k.cpu, v.cpu, slots.cpu);
  EXPECT_EQ(k.bytes(), before);
}

TEST(Elementwise, AddAndItsAliases) {
  Both b;
  on_every_target_and_type([&](DType act) {
    for (const Shape& s : kShapes) {
      for (int alias = 0; alias < 3; ++alias) {
        Operand x(act, {s.n, s.c}, s.padding), y(act, {s.n, s.c}), out(act, {s.n, s.c}, 1);
        x.normal(7), y.normal(8);
        Operand& o = alias == 0 ? out : alias == 1 ? x : y;
        b.cpu->add(o.cpu, x.cpu, y.cpu);
        b.reference().add(o.ref, x.ref, y.ref);
        expect_relative(o, kRoundoff, "add");
      }
    }
  });
}

TEST(Elementwise, SwigluAndItsAliases) {
  Both b;
  on_every_target_and_type([&](DType act) {
    for (const Shape& s : kShapes) {
      for (int alias = 0; alias < 3; ++alias) {
        Operand wide(act, {s.n, 2 * s.c}, s.padding), out(act, {s.n, s.c}, 1);
        wide.normal(9, 4.0);
        const Tensor gate = wide.cpu.columns(0, s.c), up = wide.cpu.columns(s.c, s.c);
        const Tensor ref_gate = wide.ref.columns(0, s.c), ref_up = wide.ref.columns(s.c, s.c);
        if (alias == 0) {
          b.cpu->swiglu(out.cpu, gate, up);
          b.reference().swiglu(out.ref, ref_gate, ref_up);
          // exp 2 ulp, then 1 + e, a division and a product: 2 * 2 + 4 roundings.
          expect_relative(out, 8 * kRoundoff, "swiglu");
        } else {
          b.cpu->swiglu(alias == 1 ? gate : up, gate, up);
          b.reference().swiglu(alias == 1 ? ref_gate : ref_up, ref_gate, ref_up);
          expect_relative(wide, 8 * kRoundoff, "swiglu in place");
        }
      }
    }
  });
}

TEST(Elementwise, SwigluFarFromZero) {
  Both b;
  const double gates[] = {-3e38, -1000, -104, -90, -88, -40, 0, 40, 88, 90, 1000, 3e38};
  Operand gate(DType::f32, {1, 12}), up(DType::f32, {1, 12}), out(DType::f32, {1, 12});
  gate.fill([&](int64_t i) { return gates[i]; });
  up.fill([](int64_t) { return 1.0; });
  on_every_target([&] {
    b.cpu->swiglu(out.cpu, gate.cpu, up.cpu);
    b.reference().swiglu(out.ref, gate.ref, up.ref);
    // Subnormal exponentials keep fewer digits.
    const auto want = out.ref_values();
    expect_close(
        out,
        [&](int64_t i) {
          return 8 * kRoundoff * std::abs(want[size_t(i)]) + 0x1p-149 * std::abs(gates[i]);
        },
        "swiglu");
  });
}

TEST(Elementwise, CopyBetweenStrides) {
  Both b;
  Operand x(DType::bf16, {4, 3, 5}, 2), out(DType::bf16, {4, 3, 5}, 9);
  x.normal(10);
  b.cpu->copy(out.cpu, x.cpu);
  b.reference().copy(out.ref, x.ref);
  expect_relative(out, 0, "copy");
}

// The caller may reuse its memory at once, however many uploads of every size are on their way.
TEST(Elementwise, UploadsKeepWhatTheyWereGiven) {
  const std::unique_ptr<Backend> backend = make_model_backend();
  constexpr int64_t kEach = 6000, kUploads = 70;
  Arena arena("uploads", backend->allocate(kEach * kUploads * sizeof(int32_t) + 4096, "uploads"));
  const Tensor all = arena.take(DType::i32, {kEach * kUploads});
  std::vector<int32_t> host(kEach);
  const auto count_of = [](int64_t i) { return i % 3 == 0 ? kEach : 1 + 37 * i; };
  for (int64_t i = 0; i < kUploads; ++i) {
    for (int64_t j = 0; j < kEach; ++j) host[size_t(j)] = int32_t(i * kEach + j);
    backend->upload(all.slice(i * kEach, count_of(i)), host.data());
  }
  std::vector<int32_t> back(size_t(kEach * kUploads));
  backend->download(back.data(), all);
  for (int64_t i = 0; i < kUploads; ++i) {
    for (int64_t j = 0; j < count_of(i); ++j) {
      const size_t at = size_t(i * kEach + j);
      ASSERT_EQ(back[at], int32_t(at)) << "upload " << i;
    }
  }
}

}  // namespace
}  // namespace nibble::test
