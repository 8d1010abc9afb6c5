// SPDX-License-Identifier: MIT
#include "backends/cuda/blas_lt.h"

#include <dlfcn.h>
#include <link.h>

#include <string>

#include "backends/cuda/cuda_backend.h"
#include "core/error.h"

namespace nibble::cuda {
namespace {

// The linker's own path first, then where NVIDIA's installers put it.
constexpr const char* kPlaces[] = {"libcublasLt.so.13", "/usr/local/cuda/lib64/libcublasLt.so.13",
                                   "libcublasLt.so.12", "/usr/local/cuda/lib64/libcublasLt.so.12"};

// The library, open, or null.
void* open_library() {
  for (const char* place : kPlaces) {
    if (void* library = dlopen(place, RTLD_NOW | RTLD_LOCAL)) return library;
  }
  return nullptr;
}

template <class F>
void find(void* library, F& function, const char* name) {
  function = reinterpret_cast<F>(dlsym(library, name));
  if (!function) throw_device("cuBLASLt has no function {}; CUDA 12.8 or later is needed", name);
}

}  // namespace

void fail(cublasStatus_t status, const char* call, const char* file, int line) {
  throw_device("cuBLASLt status {} from {} at {}:{}", int(status), call, file, line);
}

BlasLt::BlasLt() {
  library_ = open_library();
  if (!library_) {
    throw_device(
        "cuBLASLt was not found (libcublasLt.so.13 in the library path or /usr/local/cuda/lib64): "
        "install the CUDA libraries, add their folder to LD_LIBRARY_PATH, or use --device cpu");
  }
  try {
    find(library_, destroy_, "cublasLtDestroy");
    find(library_, matmul, "cublasLtMatmul");
    find(library_, desc_create, "cublasLtMatmulDescCreate");
    find(library_, desc_destroy, "cublasLtMatmulDescDestroy");
    find(library_, desc_set, "cublasLtMatmulDescSetAttribute");
    find(library_, layout_create, "cublasLtMatrixLayoutCreate");
    find(library_, layout_destroy, "cublasLtMatrixLayoutDestroy");
    find(library_, layout_set, "cublasLtMatrixLayoutSetAttribute");
    find(library_, preference_create, "cublasLtMatmulPreferenceCreate");
    find(library_, preference_destroy, "cublasLtMatmulPreferenceDestroy");
    find(library_, preference_set, "cublasLtMatmulPreferenceSetAttribute");
    find(library_, heuristic, "cublasLtMatmulAlgoGetHeuristic");
    find(library_, algo_get, "cublasLtMatmulAlgoConfigGetAttribute");
    decltype(&cublasLtCreate) create = nullptr;
    find(library_, create, "cublasLtCreate");
    NIBBLE_CUDA(create(&handle));
  } catch (...) {
    close();
    throw;
  }
}

BlasLt::~BlasLt() { close(); }

void BlasLt::close() {
  if (handle) destroy_(handle);
  if (library_) dlclose(library_);
}

}  // namespace nibble::cuda

std::string nibble::cuda_blas_library() {
  void* const library = cuda::open_library();
  if (!library) return {};
  const link_map* map = nullptr;
  const bool known = dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 && map && map->l_name;
  std::string path = known ? map->l_name : "libcublasLt";
  dlclose(library);
  return path;
}
