// SPDX-License-Identifier: MIT
// Which instruction sets are compiled. Included before any Highway header.
#pragma once

// Vectors are kept in arrays here, which scalable types do not allow; SSSE3 without SSE4 is a
// processor of 2007 and would only cost compile time. By number, because Highway 1.0.3 does not
// name them: what later versions compile besides, for x86 those above AVX3 (bits 0 to 7: DL, ZEN4,
// SPR; what we use of them, target_control.h finds by itself) and SSE2 (bit 14).
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | 0xffLL | (1LL << 14))
#endif

// GCC before 12.3 miscompiles the portable fallback when it auto-vectorises it (PR 106322), so
// Highway replaces it by one that lacks operations we need. These files are built without
// auto-vectorisation instead; their loops are vectorised by hand.
#ifndef HWY_BROKEN_EMU128
#define HWY_BROKEN_EMU128 0
#endif
