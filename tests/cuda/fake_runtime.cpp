// SPDX-License-Identifier: MIT
// See fake_gpu.h. Stands before the real runtime when a test is linked. Memory is the host's,
// reserved and never touched where it is large; copies of more than kRealCopy bytes to the device
// are left out, and such from it bring zeros.
#include <cuda_runtime.h>
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <unordered_map>

#include "fake_gpu.h"
#include "fake_state.h"

namespace nibble::test {
namespace {

constexpr size_t kRealCopy = size_t(64) << 10;

struct State {
  std::mutex mutex;
  FakeGpu gpu;
  std::vector<FakeLaunch> launches;
  std::map<const char*, size_t> device_memory;
  std::unordered_map<const void*, std::string> kernels;  // by host function
  bool no_memory = false;
  cudaError_t last = cudaSuccess;
  std::string why = "an error of the fake GPU";
};

State& state() {
  static State* const s = new State;  // outlives what unregisters at exit
  return *s;
}

cudaError_t failed(cudaError_t error) {
  state().last = error;
  return error;
}

bool on_device(const void* p) {
  State& s = state();
  auto after = s.device_memory.upper_bound(static_cast<const char*>(p));
  if (after == s.device_memory.begin()) return false;
  const auto& [begin, size] = *--after;
  return static_cast<const char*>(p) < begin + size;
}

// What needs compute capability 9.0's own instructions has no body elsewhere.
bool is_for_hopper(const std::string& kernel) {
  // Whole names as the compiler writes them begin with their length.
  for (const char* name :
       {"wgmma", "mixed_gemm", "12wgrad_kernel", "12token_kernel", "11back_kernel"}) {
    if (kernel.find(name) != std::string::npos) return true;
  }
  return false;
}

int handles = 0;  // streams, events and graphs are addresses of nothing
template <class T>
T a_handle() {
  return reinterpret_cast<T>(&handles);
}

}  // namespace

void install_fake_gpu(const FakeGpu& gpu) {
  state().gpu = gpu;
  take_fake_launches();
}
std::vector<FakeLaunch> take_fake_launches() { return std::exchange(state().launches, {}); }
void fail_next_fake_allocation() { state().no_memory = true; }
void note_fake_launch(FakeLaunch launch) { state().launches.push_back(std::move(launch)); }

}  // namespace nibble::test

using namespace nibble::test;

extern "C" {

void** __cudaRegisterFatBinary(void*) {
  static void* none = nullptr;
  return &none;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}
void __cudaRegisterFunction(void**, const char* host, char*, const char* name, int, uint3*, uint3*,
                            dim3*, dim3*, int*) {
  state().kernels[host] = name;
}
cudaError_t __cudaPopCallConfiguration(dim3*, dim3*, size_t*, void*) {
  return cudaErrorNotSupported;
}
cudaError_t __cudaGetKernel(cudaKernel_t*, const void*) { return cudaErrorNotSupported; }
cudaError_t __cudaLaunchKernel(cudaKernel_t, dim3, dim3, void**, size_t, cudaStream_t) {
  return cudaErrorNotSupported;
}

cudaError_t cudaDriverGetVersion(int* v) {
  *v = 13000;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* v) {
  *v = 13000;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* n) {
  *n = 1;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int) { return cudaSuccess; }
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int) {
  const FakeGpu& gpu = state().gpu;
  *p = {};
  std::strncpy(p->name, gpu.name.c_str(), sizeof p->name - 1);
  p->major = gpu.major, p->minor = gpu.minor;
  p->totalGlobalMem = gpu.memory_bytes;
  p->integrated = gpu.integrated;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr which, int) {
  const FakeGpu& gpu = state().gpu;
  switch (which) {
    case cudaDevAttrComputeCapabilityMajor: *value = gpu.major; return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor: *value = gpu.minor; return cudaSuccess;
    case cudaDevAttrMultiProcessorCount: *value = gpu.multiprocessors; return cudaSuccess;
    case cudaDevAttrCooperativeLaunch: *value = 1; return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = int(gpu.shared_per_block);
      return cudaSuccess;
    case cudaDevAttrIntegrated: *value = gpu.integrated; return cudaSuccess;
    case cudaDevAttrL2CacheSize: *value = int(gpu.l2_bytes); return cudaSuccess;
    default: return failed(cudaErrorNotSupported);  // one that was not thought of
  }
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* a, const void*) {
  *a = {};
  a->ptxVersion = a->binaryVersion = state().gpu.capability();
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) { return cudaSuccess; }
cudaError_t cudaGetLastError() { return std::exchange(state().last, cudaSuccess); }
const char* cudaGetErrorString(cudaError_t) { return state().why.c_str(); }
const char* cudaGetErrorName(cudaError_t) { return "fake"; }

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *free = *total = state().gpu.memory_bytes;
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** p, size_t n) {
  if (std::exchange(state().no_memory, false)) return failed(cudaErrorMemoryAllocation);
  *p = mmap(nullptr, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (*p == MAP_FAILED) return failed(cudaErrorMemoryAllocation);
  state().device_memory[static_cast<const char*>(*p)] = n;
  return cudaSuccess;
}
cudaError_t cudaFree(void* p) {
  const auto found = state().device_memory.find(static_cast<const char*>(p));
  if (found == state().device_memory.end()) return p ? failed(cudaErrorInvalidValue) : cudaSuccess;
  munmap(p, found->second);
  state().device_memory.erase(found);
  return cudaSuccess;
}
cudaError_t cudaHostAlloc(void** p, size_t n, unsigned) {
  *p = std::calloc(n, 1);
  return *p ? cudaSuccess : failed(cudaErrorMemoryAllocation);
}
cudaError_t cudaFreeHost(void* p) {
  std::free(p);
  return cudaSuccess;
}
cudaError_t cudaMemset(void*, int, size_t) { return cudaSuccess; }  // of new memory, which is zero
cudaError_t cudaMemsetAsync(void*, int, size_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaMemset2DAsync(void*, size_t, int, size_t, size_t, cudaStream_t) {
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t n, cudaMemcpyKind, cudaStream_t) {
  if (n <= kRealCopy) {
    std::memmove(to, from, n);
  } else if (!on_device(to)) {
    std::memset(to, 0, n);
  }
  return cudaSuccess;
}
cudaError_t cudaMemcpy2DAsync(void*, size_t, const void*, size_t, size_t, size_t, cudaMemcpyKind,
                              cudaStream_t) {
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* s, unsigned) {
  *s = a_handle<cudaStream_t>();
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return cudaSuccess; }
cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode) { return cudaSuccess; }
cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t* g) {
  *g = a_handle<cudaGraph_t>();
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* e, cudaGraph_t, unsigned long long) {
  *e = a_handle<cudaGraphExec_t>();
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t) { return cudaSuccess; }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t) { return cudaSuccess; }
cudaError_t cudaGraphLaunch(cudaGraphExec_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaEventCreate(cudaEvent_t* e) {
  *e = a_handle<cudaEvent_t>();
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* e, unsigned) { return cudaEventCreate(e); }
cudaError_t cudaEventDestroy(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaEventQuery(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t, cudaEvent_t) {
  *ms = 1;
  return cudaSuccess;
}

// Tensor maps (TMA) are made by the driver: none at all does where nothing is run.
static int no_tensor_map() { return 0; }
cudaError_t cudaGetDriverEntryPointByVersion(const char*, void** f, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult* found) {
  *f = reinterpret_cast<void*>(no_tensor_map);
  if (found) *found = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}

static unsigned cluster_of(const cudaLaunchConfig_t* config, bool* cooperative) {
  unsigned cluster = 1;
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    if (config->attrs[i].id == cudaLaunchAttributeClusterDimension) {
      cluster = config->attrs[i].val.clusterDim.x;
    }
    if (config->attrs[i].id == cudaLaunchAttributeCooperative) *cooperative = true;
  }
  return cluster;
}

// How many clusters are resident: multiprocessors come in groups (GPCs) that a cluster cannot
// leave. Those of an H200 as its driver said (docs/adr/0012); elsewhere as if none were cut.
cudaError_t cudaOccupancyMaxActiveClusters(int* n, const void*, const cudaLaunchConfig_t* config) {
  const FakeGpu& gpu = state().gpu;
  bool cooperative = false;
  const unsigned cluster = cluster_of(config, &cooperative);
  if (gpu.major < 9 || config->dynamicSmemBytes > gpu.shared_per_block) {
    return failed(cudaErrorInvalidValue);
  }
  *n = gpu.multiprocessors / int(cluster);
  if (gpu.major == 9 && cluster >= 4) *n = cluster == 4 ? 30 : 14;
  return cudaSuccess;
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* kernel, void**) {
  const FakeGpu& gpu = state().gpu;
  FakeLaunch l;
  l.kernel = state().kernels.at(kernel);
  l.cluster = cluster_of(config, &l.cooperative);
  l.blocks[0] = config->gridDim.x, l.blocks[1] = config->gridDim.y, l.blocks[2] = config->gridDim.z;
  l.threads = config->blockDim.x * config->blockDim.y * config->blockDim.z;
  l.shared_bytes = config->dynamicSmemBytes;
  const char* problem = nullptr;
  if (l.shared_bytes > gpu.shared_per_block) problem = "more shared memory than a block may have";
  if (l.threads < 1 || l.threads > 1024) problem = "too many threads";
  if (l.blocks[1] > 65535 || l.blocks[2] > 65535) problem = "too many blocks";
  if (l.cluster > 8 || l.blocks[0] % l.cluster != 0) problem = "no such clusters";
  if (gpu.major < 9 && config->numAttrs > 0) problem = "clusters or dependent launches before 9.0";
  if (gpu.capability() != 90 && is_for_hopper(l.kernel)) problem = "instructions of 9.0 alone";
  if (problem) state().why = l.kernel + " on " + gpu.name + ": " + problem;
  state().launches.push_back(std::move(l));
  return problem ? failed(cudaErrorInvalidConfiguration) : cudaSuccess;
}

}  // extern "C"
