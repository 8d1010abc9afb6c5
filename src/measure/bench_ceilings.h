// SPDX-License-Identifier: MIT
// What a backend can do at most: measured through its own ops for a GPU, by bench_peak.h for a CPU.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include "backend/backend.h"

namespace nibble {

// What times are held against: bandwidth and the rate of products, measured.
struct Ceilings {
  double bytes = 0, flops = 0;         // per second
  std::string bytes_name, flops_name;  // "read", "FMA": columns and JSON keys
  std::string description;
};
// A GPU's by its own ops, a CPU's with `threads` threads; `buffer`: bytes that are copied or read.
Ceilings measure_ceilings(Backend& backend, int threads, size_t buffer);

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
