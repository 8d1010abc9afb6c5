// SPDX-License-Identifier: MIT
// What g++ calls at every branch, as libFuzzer counts it: g++ reports addresses, libFuzzer asks for
// counters at known ones. Linked with --wrap, because libFuzzer has an empty function of that name.
#include <cstdint>

namespace {

constexpr uintptr_t kPlaces = 1 << 16;
uint8_t counters[kPlaces];
uintptr_t places[2 * kPlaces];  // pairs of an address and flags

}  // namespace

extern "C" {

void __sanitizer_cov_8bit_counters_init(uint8_t* begin, uint8_t* end);
void __sanitizer_cov_pcs_init(const uintptr_t* begin, const uintptr_t* end);

__attribute__((constructor)) static void announce() {
  for (uintptr_t i = 0; i < kPlaces; ++i) places[2 * i] = i + 1;
  __sanitizer_cov_8bit_counters_init(counters, counters + kPlaces);
  __sanitizer_cov_pcs_init(places, places + 2 * kPlaces);
}

void __wrap___sanitizer_cov_trace_pc() {
  const auto at = reinterpret_cast<uintptr_t>(__builtin_return_address(0));
  ++counters[(at ^ at >> 16) % kPlaces];
}

// g++ reports comparisons of floats, too, which libFuzzer has no use for (some versions define
// them).
__attribute__((weak)) void __sanitizer_cov_trace_cmpf(float, float) {}
__attribute__((weak)) void __sanitizer_cov_trace_cmpd(double, double) {}

}  // extern "C"
