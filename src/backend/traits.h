// SPDX-License-Identifier: MIT
// What is known of a backend before anything runs on it: callers ask these instead of its type.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>

#include "core/dtype.h"

namespace nibble {

enum class DeviceKind { cpu, cuda };

struct BackendTraits {
  DeviceKind device = DeviceKind::cpu;
  int code_capability = 0;         // of a GPU: what its kernels were compiled for, 90: 9.0
  bool native_fp4 = false;         // products of NVFP4 with NVFP4 on FP4 tensor cores, not emulated
  bool one_launch_decode = false;  // where the plan allows it, see decode_way
  bool hand_over = false;          // make_hand_over gives one
  bool records = false;            // repeat() replays a recording instead of running the ops again
  size_t page_bytes = 0;           // of reserve(); 0: the backend has none
  // Whether a row of a product has the same bits whatever the number of rows beside it. Then whole
  // prompts, chunks, single tokens and batches agree bit for bit; otherwise within rounding.
  bool batch_invariant_f32 = true, batch_invariant_16_bit = true;
  bool batch_invariant(DType compute) const {
    return dtype_bytes(compute) == 2 ? batch_invariant_16_bit : batch_invariant_f32;
  }
};

// Of a device with memory of its own; all 0 where ops work in the host's.
struct DeviceMemory {
  uint64_t bytes = 0, peak_bytes = 0;  // held by this backend's buffers, now and at most
  uint64_t allocations = 0;            // so far
  uint64_t used_by_all = 0;            // on the device, by all processes
};

using ReadDeviceMemory = std::function<DeviceMemory()>;

}  // namespace nibble
