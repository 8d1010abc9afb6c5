// SPDX-License-Identifier: MIT
// A GPU on paper: the CUDA runtime's functions over the host's memory, with the limits of whatever
// architecture is wanted. Kernels are not run, their launches are noted; one that the architecture
// could not run fails. So a machine without a GPU can tell what the backend would launch on any.
#pragma once
#include <cstddef>
#include <ostream>
#include <string>
#include <vector>

namespace nibble::test {

// NVIDIA's published limits (CUDA C++ Programming Guide, compute capabilities) and data sheets.
struct FakeGpu {
  std::string name;
  int major = 0, minor = 0;
  int multiprocessors = 0;
  size_t shared_per_block = 0;  // with opt-in; a multiprocessor has 1 KiB more
  size_t l2_bytes = 0, memory_bytes = 0;
  bool integrated = false;  // shares the host's memory
  int capability() const { return 10 * major + minor; }
};

inline void PrintTo(const FakeGpu& gpu, std::ostream* out) { *out << gpu.name; }

struct FakeLaunch {
  std::string kernel;  // as the compiler names it; "cuBLASLt" for a product of that library
  unsigned blocks[3] = {1, 1, 1}, threads = 0;
  size_t shared_bytes = 0;  // dynamic
  unsigned cluster = 1;
  bool cooperative = false;
  long product[3] = {};  // cuBLASLt: m, n, k in its order
};

// The only device there is, from now on.
void install_fake_gpu(const FakeGpu& gpu);
// The next cudaMalloc finds no memory.
void fail_next_fake_allocation();
// What was launched since the last call, in order.
std::vector<FakeLaunch> take_fake_launches();

}  // namespace nibble::test
