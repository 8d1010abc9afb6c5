// SPDX-License-Identifier: MIT
// What every body of comm/comm.h must do, said by each of its ranks.
#pragma once
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "comm/comm.h"
#include "core/half.h"

namespace nibble::test {

// A number that has more bits than fit, another one for each rank and element: sums of these depend
// on their order.
inline float rough(int rank, int64_t i) {
  return std::sin(float(rank + 1) * 12.9898f + float(i) * 78.233f) *
         std::exp2(float((i * 7 + rank * 5) % 23) - 11);
}

// Empty: all is as it must be.
inline std::string check_comm(Comm& c) {
  const int n = c.size(), me = c.rank();
  const auto problem = [&](const char* what) { return "rank " + std::to_string(me) + ": " + what; };
  // Parts of other sizes for everybody, none among them.
  {
    std::vector<std::vector<std::byte>> to(size_t(n), std::vector<std::byte>{});
    auto from = to;
    std::vector<ConstBytes> send;
    std::vector<Bytes> receive;
    const auto size_of = [](int a, int b) { return size_t((a * 5 + b * 3) % 7) * 1000; };
    for (int r = 0; r < n; ++r) {
      to[size_t(r)].assign(size_of(me, r), std::byte(me * 16 + r));
      from[size_t(r)].resize(size_of(r, me));
      send.emplace_back(to[size_t(r)]);
      receive.emplace_back(from[size_t(r)]);
    }
    const uint64_t before = c.bytes_sent();
    c.exchange(send, receive);
    uint64_t sent = 0;
    for (int r = 0; r < n; ++r) {
      if (r != me) sent += size_of(me, r);
      for (const std::byte b : from[size_t(r)]) {
        if (b != std::byte(r * 16 + me)) return problem("an exchange mixes parts");
      }
    }
    if (c.bytes_sent() - before != sent) return problem("bytes sent are not those that were");
  }
  // Two under way at once, larger than what MPI sends unasked; each fills its own.
  {
    constexpr size_t kLong = 300000;
    std::vector<std::vector<std::byte>> to(2), from(2);
    std::vector<std::unique_ptr<Comm::UnderWay>> under_way(2);
    const auto end = [&](int k) {
      const auto& heard = from[size_t(k % 2)];
      under_way[size_t(k % 2)]->end();
      for (int r = 0; r < n; ++r) {
        if (heard[size_t(r) * kLong] != std::byte(k * 16 + r) ||
            heard[size_t(r + 1) * kLong - 1] != std::byte(k * 16 + r))
          return false;
      }
      return true;
    };
    for (int k = 0; k < 5; ++k) {
      if (k >= 2 && !end(k - 2)) return problem("exchanges that overlap are mixed up");
      to[size_t(k % 2)].assign(kLong, std::byte(k * 16 + me));
      from[size_t(k % 2)].resize(kLong * size_t(n));
      std::vector<Bytes> receive;
      for (int r = 0; r < n; ++r)
        receive.push_back(Bytes(from[size_t(k % 2)]).subspan(size_t(r) * kLong, kLong));
      const std::vector<ConstBytes> send(size_t(n), to[size_t(k % 2)]);
      under_way[size_t(k % 2)] = c.begin_exchange(send, receive);
    }
    if (!end(3) || !end(4)) return problem("exchanges that overlap are mixed up");
  }
  c.barrier();
  // A broadcast, from the first and from the last.
  for (const int root : {0, n - 1}) {
    std::vector<int32_t> v(1000, me == root ? 7 + root : -1);
    c.broadcast(make_tensor(v.data(), DType::i32, {1000}), root);
    for (const int32_t x : v) {
      if (x != 7 + root) return problem("a broadcast is not what was said");
    }
  }
  {
    std::vector<float> all(size_t(n * 10), -1);
    std::vector<Tensor> parts;
    for (int r = 0; r < n; ++r) {
      parts.push_back(make_tensor(all.data() + r * 10, DType::f32, {r % 2 ? 10 : 4}));
    }
    for (int64_t i = 0; i < parts[size_t(me)].numel(); ++i) all[size_t(me * 10 + i)] = rough(me, i);
    c.all_gather(parts);
    for (int r = 0; r < n; ++r) {
      for (int64_t i = 0; i < parts[size_t(r)].numel(); ++i) {
        if (all[size_t(r * 10 + i)] != rough(r, i)) return problem("a gathering mixes parts");
      }
    }
  }
  // Sums, bit for bit those of rank 0, 1, ... one after the other.
  const int64_t count = 4099;
  const auto expected = [&](int64_t i) {
    float sum = rough(0, i);
    for (int r = 1; r < n; ++r) sum += rough(r, i);
    return sum;
  };
  {
    std::vector<float> x(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) x[size_t(i)] = rough(me, i);
    c.all_reduce(make_tensor(x.data(), DType::f32, {count}));
    for (int64_t i = 0; i < count; ++i) {
      const float e = expected(i);
      if (std::memcmp(&x[size_t(i)], &e, 4) != 0) return problem("all_reduce: another sum");
    }
  }
  {
    std::vector<float> all(size_t(count * n)), mine(static_cast<size_t>(count));
    for (int64_t i = 0; i < count * n; ++i) all[size_t(i)] = rough(me, i);
    c.reduce_scatter(make_tensor(mine.data(), DType::f32, {count}),
                     make_tensor(all.data(), DType::f32, {count * n}));
    for (int64_t i = 0; i < count; ++i) {
      const float e = expected(me * count + i);
      if (std::memcmp(&mine[size_t(i)], &e, 4) != 0) return problem("reduce_scatter: another sum");
    }
  }
  if (c.broadcast_text(me == 0 ? "said" : "") != "said")
    return problem("a text is not what it was");
  const std::vector<std::string> texts = c.gather_texts(std::string(size_t(me), 'x'));
  for (int r = 0; r < n; ++r) {
    if (texts[size_t(r)] != std::string(size_t(r), 'x')) return problem("texts are mixed up");
  }
  return {};
}

}  // namespace nibble::test
