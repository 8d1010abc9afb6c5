// SPDX-License-Identifier: MIT
#include "backends/cuda/kernels/linear/fp4_native.h"

#include <algorithm>

#include "backends/cuda/kernels/linear/blas_gemm.h"
#include "backends/cuda/kernels/linear/fp4_algorithms.h"
#include "quant/swizzle.h"

namespace nibble::cuda {
namespace {

cudaDataType output_type(DType t) {
  return t == DType::bf16 ? CUDA_R_16BF : t == DType::f16 ? CUDA_R_16F : CUDA_R_32F;
}
size_t aligned_to_128(size_t n) { return (n + 127) / 128 * 128; }

// Descriptors of one product; they hold the addresses of the scales, so they are made anew, which
// costs a microsecond.
struct Descriptors {
  explicit Descriptors(const BlasLt& b) : blas(b) {}
  ~Descriptors() {
    if (operation) blas.desc_destroy(operation);
    for (cublasLtMatrixLayout_t l : {a, b, d}) {
      if (l) blas.layout_destroy(l);
    }
    if (preference) blas.preference_destroy(preference);
  }
  Descriptors(const Descriptors&) = delete;
  Descriptors& operator=(const Descriptors&) = delete;

  const BlasLt& blas;
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, d = nullptr;
  cublasLtMatmulPreference_t preference = nullptr;
};

using Key = Fp4Algorithms::Key;

cublasLtMatmulAlgo_t algorithm_for(const Context& c, Descriptors& d, const Key& key) {
  auto& algorithms = c.fp4_algorithms->chosen;
  const auto found = algorithms.find(key);
  if (found != algorithms.end()) return found->second;
  NIBBLE_CUDA(c.blas->preference_create(&d.preference));
  const size_t workspace = Context::kBlasBytes;
  NIBBLE_CUDA(c.blas->preference_set(d.preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                     &workspace, sizeof workspace));
  cublasLtMatmulHeuristicResult_t best = {};
  int count = 0;
  const cublasStatus_t status = c.blas->heuristic(c.blas->handle, d.operation, d.a, d.b, d.d, d.d,
                                                  d.preference, 1, &best, &count);
  if (status != CUBLAS_STATUS_SUCCESS || count == 0) {
    throw_device(
        "cuBLASLt has no NVFP4 kernel for a product of {} x {} x {} (status {}); use --activations "
        "bf16",
        std::get<1>(key), std::get<0>(key), std::get<2>(key), int(status));
  }
  if (algorithms.size() >= 1024) algorithms.clear();
  return algorithms.emplace(key, best.algo).first->second;
}

// out [N, rows] = x [N, in] . w [rows, in]^T of NVFP4 operands.
void multiply(const Context& c, Tensor out, const Fp4Operand& x, const Fp4Operand& w, int64_t in) {
  const BlasLt& blas = *c.blas;
  Descriptors d(blas);
  NIBBLE_CUDA(blas.desc_create(&d.operation, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  const auto set = [&](cublasLtMatmulDescAttributes_t what, const auto& value) {
    NIBBLE_CUDA(blas.desc_set(d.operation, what, &value, sizeof value));
  };
  const int32_t mode = CUBLASLT_MATMUL_MATRIX_SCALE_VEC16_UE4M3;
  set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
  set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, mode);
  set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, mode);
  const void *w_scales = w.scales, *x_scales = x.scales;
  set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, w_scales);
  set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, x_scales);
  // Column by column in cuBLASLt's eyes, as in blas_gemm.
  NIBBLE_CUDA(blas.layout_create(&d.a, CUDA_R_4F_E2M1, uint64_t(in), uint64_t(w.rows), in));
  NIBBLE_CUDA(blas.layout_create(&d.b, CUDA_R_4F_E2M1, uint64_t(in), uint64_t(x.rows), in));
  NIBBLE_CUDA(blas.layout_create(&d.d, output_type(out.dtype), uint64_t(w.rows), uint64_t(x.rows),
                                 out.row_stride));
  const cublasLtMatmulAlgo_t algorithm =
      algorithm_for(c, d, Key(w.rows, x.rows, in, out.row_stride, out.dtype));
  const float one = 1, zero = 0;
  NIBBLE_CUDA(blas.matmul(blas.handle, d.operation, &one, w.codes, d.a, x.codes, d.b, &zero,
                          out.data, d.d, out.data, d.d, &algorithm, c.blas_workspace(),
                          Context::kBlasBytes, c.stream));
}

}  // namespace

bool native_fp4_device(const Context& c) { return c.device_capability >= 100; }

bool native_fp4_fits(const Context& c, const Tensor& out, const Tensor& x, const LinearWeight& w) {
  return native_fp4_device(c) && w.is_packed() &&
         (c.require_native_fp4 || x.dim(0) > kSkinnyTokens) && w.in % 32 == 0 && w.out % 8 == 0 &&
         (x.dtype == DType::bf16 || x.dtype == DType::f16) && blas_aligned(out) &&
         fp4_rows_within(kActivationBytes, w.in) > 0;
}

size_t fp4_operand_bytes(int64_t rows, int64_t in) {
  return aligned_to_128(size_t(rows * in / 2)) +
         aligned_to_128(swizzled_scale_bytes(rows, in / 16));
}

Fp4Operand fp4_operand(std::byte* memory, int64_t rows, int64_t in) {
  auto* codes = reinterpret_cast<uint8_t*>(memory);
  return {codes, codes + aligned_to_128(size_t(rows * in / 2)), rows};
}

int64_t fp4_rows_within(size_t n_bytes, int64_t in) {
  // Exact for whole tiles of 128 rows: both parts are then proportional to them.
  return int64_t(n_bytes / fp4_operand_bytes(128, in)) * 128;
}

void native_fp4_product(const Context& c, Tensor out, Tensor x, const LinearWeight& w) {
  std::byte* activations = c.scratch() + kPanelBytes;
  auto* sums = reinterpret_cast<float*>(activations + kActivationBytes);
  const int64_t row_step = std::min(w.out, fp4_rows_within(kPanelBytes, w.in));
  int64_t token_step = fp4_rows_within(kActivationBytes, w.in);
  if (w.row_scale) {
    token_step = std::min(token_step, std::max<int64_t>(1, int64_t(kOutputBytes / 4) / row_step));
  }
  for (int64_t r = 0; r < w.out; r += row_step) {
    const int64_t rows = std::min(row_step, w.out - r);
    const Fp4Operand weights = fp4_operand(c.scratch(), rows, w.in);
    make_weight_operand(c, weights, w, r);
    for (int64_t n = 0; n < x.dim(0); n += token_step) {
      const int64_t count = std::min(token_step, x.dim(0) - n);
      const Fp4Operand tokens = fp4_operand(activations, count, w.in);
      make_activation_operand(c, tokens, x.slice(n, count));
      const Tensor part = out.slice(n, count).columns(r, rows);
      if (!w.row_scale) {
        multiply(c, part, tokens, weights, w.in);
        continue;
      }
      const Tensor exact = make_tensor(sums, DType::f32, {count, rows});
      multiply(c, exact, tokens, weights, w.in);
      scale_columns(c, part, exact, w.row_scale.as<float>() + r);
    }
  }
}

}  // namespace nibble::cuda
