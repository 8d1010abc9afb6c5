// SPDX-License-Identifier: MIT
// Work dealt out to several who do it at the same time: devices, say.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/thread_pool.h"

namespace nibble {

// [0, items) in runs that follow each other, one for each of `takers`, of whom nobody who has items
// is without: body(taker, begin, end), each in a thread of its own. The first exception is rethrown
// when all have ended.
template <class Body>
void share_out(int64_t items, size_t takers, Body&& body) {
  const auto n = std::clamp<int64_t>(items, 1, int64_t(takers));
  const auto begin_of = [&](int64_t taker) { return items * taker / n; };
  ThreadPool threads{int(n)};
  threads.parallel_for(n, 1, [&](int64_t first, int64_t end, int) {
    for (int64_t t = first; t < end; ++t) body(size_t(t), begin_of(t), begin_of(t + 1));
  });
}

}  // namespace nibble
