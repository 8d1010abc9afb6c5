// SPDX-License-Identifier: MIT
// What this machine can do at most, measured: the ceilings `nibble bench` holds its figures
// against.
#pragma once
#include <cstddef>

namespace nibble {

class ThreadPool;

// Bytes per second of reading a buffer of `n_bytes` (far larger than any cache), best of `passes`.
double read_bandwidth(ThreadPool& pool, size_t n_bytes, int passes);
// fp32 multiply-adds in registers, counted as two operations each, per second; best of `passes`.
double fma_peak(ThreadPool& pool, int passes);

}  // namespace nibble
