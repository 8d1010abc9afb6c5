// SPDX-License-Identifier: MIT
// cuBLASLt on paper: it has one algorithm for every product and notes what it is asked for.
// The library of fake_runtime.cpp bears cuBLASLt's name, so that it is the one that is opened.
#include <cublasLt.h>

#include <cstring>

#include "fake_state.h"

using namespace nibble::test;

namespace {

struct Layout {
  uint64_t rows, cols;
};
struct Desc {
  int32_t trans_a = CUBLAS_OP_N;
};

}  // namespace

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* h) {
  static int one;
  *h = reinterpret_cast<cublasLtHandle_t>(&one);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t) { return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* d, cublasComputeType_t,
                                        cudaDataType_t) {
  *d = reinterpret_cast<cublasLtMatmulDesc_t>(new Desc);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d) {
  delete reinterpret_cast<Desc*>(d);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d,
                                              cublasLtMatmulDescAttributes_t which,
                                              const void* value, size_t) {
  if (which == CUBLASLT_MATMUL_DESC_TRANSA) {
    std::memcpy(&reinterpret_cast<Desc*>(d)->trans_a, value, sizeof(int32_t));
  }
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* l, cudaDataType, uint64_t rows,
                                          uint64_t cols, int64_t) {
  *l = reinterpret_cast<cublasLtMatrixLayout_t>(new Layout{rows, cols});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l) {
  delete reinterpret_cast<Layout*>(l);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t,
                                                cublasLtMatrixLayoutAttribute_t, const void*,
                                                size_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* p) {
  static int one;
  *p = reinterpret_cast<cublasLtMatmulPreference_t>(&one);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t,
                                                    cublasLtMatmulPreferenceAttributes_t,
                                                    const void*, size_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatmulPreference_t, int,
                                              cublasLtMatmulHeuristicResult_t* results,
                                              int* count) {
  results[0] = {};
  *count = 1;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t*,
                                                    cublasLtMatmulAlgoConfigAttributes_t,
                                                    void* value, size_t size, size_t* written) {
  std::memset(value, 0, size);
  if (written) *written = size;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t d, const void*, const void*,
                              cublasLtMatrixLayout_t a, const void*, cublasLtMatrixLayout_t,
                              const void*, const void*, cublasLtMatrixLayout_t, void*,
                              cublasLtMatrixLayout_t out, const cublasLtMatmulAlgo_t*, void*,
                              size_t, cudaStream_t) {
  const Layout &left = *reinterpret_cast<Layout*>(a), &to = *reinterpret_cast<Layout*>(out);
  const bool transposed = reinterpret_cast<Desc*>(d)->trans_a == CUBLAS_OP_T;
  FakeLaunch l;
  l.kernel = "cuBLASLt";
  l.product[0] = long(to.rows), l.product[1] = long(to.cols);
  l.product[2] = long(transposed ? left.rows : left.cols);
  note_fake_launch(std::move(l));
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
