// SPDX-License-Identifier: MIT
// Which instruction sets are compiled. Included before any Highway header.
#pragma once

// Vectors are kept in arrays here, which scalable types do not allow; SSSE3 without SSE4 is a
// processor of 2007 and would only cost compile time.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#endif

// GCC before 12.3 miscompiles the portable fallback when it auto-vectorises it (PR 106322), so
// Highway replaces it by one that lacks operations we need. These files are built without
// auto-vectorisation instead; their loops are vectorised by hand.
#ifndef HWY_BROKEN_EMU128
#define HWY_BROKEN_EMU128 0
#endif
