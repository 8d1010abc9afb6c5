// SPDX-License-Identifier: MIT
// What a backend can do at most, measured through its own ops: the ceilings of a GPU. A CPU's are
// in bench_peak.h.
#pragma once
#include <cstddef>
#include <cstdint>

#include "backend/backend.h"

namespace nibble {

// Bytes per second of copying `n_bytes` inside the backend's memory, reads and writes counted; best
// of `passes`.
double copy_bandwidth(Backend& backend, size_t n_bytes, int passes);
// Operations per second of a product of two dense bf16 matrices [n, n], multiply and add counted
// apart; best of `passes`. The values are random: a GPU's clock depends on them.
double matrix_peak(Backend& backend, int64_t n, int passes);

// The largest sizes that fit into the memory that is left, up to those of a serious measurement.
size_t copy_size_that_fits(const Backend& backend, size_t most);
int64_t matrix_size_that_fits(const Backend& backend, int64_t most);

}  // namespace nibble
