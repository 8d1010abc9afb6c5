// SPDX-License-Identifier: MIT
#include "runtime/device.h"

#include "backends/cuda/cuda_backend.h"
#include "core/log.h"

namespace nibble {
namespace {

constexpr bool kBuiltWithCuda = NIBBLE_HAS_CUDA;

}  // namespace

Device resolve_device(const Device& wanted) {
  if (wanted.kind != Device::automatic) return wanted;  // what is wrong with it, the backend says
  const CudaSupport support = cuda_support();
  return support.usable() ? Device(Device::cuda, support.devices.front().index) : Device::cpu;
}

Device choose_device(const Device& wanted) {
  const Device chosen = resolve_device(wanted);
  if (kBuiltWithCuda && wanted.kind == Device::automatic && chosen.kind == Device::cpu) {
    log_info("on the CPU: {}", cuda_support().problem);
  }
  return chosen;
}

}  // namespace nibble
