// SPDX-License-Identifier: MIT
// The linear layer: prepares the activations once, then chooses the product.
#include "backends/cpu/kernels/linear.h"

#include <algorithm>

#include "backends/cpu/kernels/gemm.h"
#include "backends/cpu/kernels/kernels.h"
#include "backends/cpu/kernels/packed_layout.h"
#include "quant/nvfp4.h"

namespace nibble::cpu {
namespace {

// Enough work to pay for a thread, little enough to share evenly: about 64 KiB of weights for one
// token, less for many.
int64_t grain_for(int64_t items, int64_t bytes_per_item, int64_t tokens, int threads) {
  const int64_t wanted = std::max<int64_t>(
      1, (64 << 10) / std::max<int64_t>(1, bytes_per_item) / std::clamp<int64_t>(tokens / 4, 1, 8));
  // Never so large that a thread goes without.
  return std::max<int64_t>(1, std::min(wanted, items / (2 * threads)));
}

// x as floats, rounded through NVFP4 for W4A4. Float input is used where it lies.
GemmRows float_activations(Context& c, const Tensor& x, Activations activations) {
  const int64_t n = x.dim(0), width = x.dim(1);
  if (activations == Activations::none && x.dtype == DType::f32) {
    return {GemmElement::f32, x.as<float>(), x.row_stride, n};
  }
  const size_t float_bytes = size_t(n * width) * sizeof(float);
  const size_t code_bytes = activations == Activations::nvfp4 ? size_t(n * width) : 0;
  float* out = reinterpret_cast<float*>(c.activations.get(float_bytes + code_bytes));
  uint8_t* codes = reinterpret_cast<uint8_t*>(out + n * width);
  for_rows(c.pool, n, width, [&](int64_t begin, int64_t end, int) {
    rows_to_float(x, out, begin, end);
    if (activations != Activations::nvfp4) return;
    float* rows = out + begin * width;
    uint8_t* row_codes = codes + begin * width;
    uint8_t* scales = row_codes + (end - begin) * width / 2;
    quantize_rows(rows, end - begin, width, ScaleRule::absmax, 1.0f, row_codes, scales);
    dequantize_rows(row_codes, scales, end - begin, width, 1.0f, rows);
  });
  return {GemmElement::f32, out, width, n};
}

GemmRows pair_activations(Context& c, const Tensor& x) {
  const int64_t n = x.dim(0), steps = gemm_steps(GemmElement::bf16_pair, x.dim(1));
  float* out = c.activations.get_as<float>(size_t(n * steps));
  for_rows(c.pool, n, steps,
           [&](int64_t begin, int64_t end, int) { rows_to_pairs(x, out, begin, end); });
  return {GemmElement::bf16_pair, out, steps, n};
}

Int8Rows int8_activations(Context& c, const Tensor& x) {
  const int64_t n = x.dim(0), tiles = tiles_across(x.dim(1)), group = int8_group(n);
  const int64_t padded = (n + group - 1) / group * group;
  auto* out = c.activations.get_as<Int8Tile>(size_t(padded * tiles));
  for_rows(c.pool, n, 2 * x.dim(1),
           [&](int64_t begin, int64_t end, int) { rows_to_int8(x, out, group, begin, end); });
  return {out, group, n, tiles};
}

// Tokens whose activations stay in the second-level cache while the weights stream past.
int64_t token_block(int64_t bytes_per_token) {
  constexpr int64_t kCacheBytes = 512 << 10;
  const int64_t tokens = kCacheBytes / std::max<int64_t>(1, bytes_per_token);
  return std::clamp<int64_t>(tokens / 16 * 16, 16, 1024);
}

void int8_product(Context& c, const LinearOutput& o, const Tensor& x, const LinearWeight& w) {
  const int64_t n = x.dim(0), strips = strips_of(w.out);
  const int64_t strip_bytes = tiles_across(w.in) * kTileBytes;
  const int threads = c.pool.size();
  const Int8Rows rows = int8_activations(c, x);
  const int64_t block = token_block(tiles_across(w.in) * int64_t(sizeof(Int8Tile)));
  const size_t scratch_bytes = int8_scratch_bytes(std::min(n, block));
  std::byte* scratch = c.thread_scratch.get(scratch_bytes * size_t(threads));
  for (int64_t t = 0; t < n; t += block) {
    const int64_t t_end = std::min(n, t + block);
    // Pairs of strips, because the kernel for many tokens may take two at a time.
    const int64_t pairs = (strips + 1) / 2;
    c.pool.parallel_for(pairs, grain_for(pairs, 2 * strip_bytes, t_end - t, threads),
                        [&](int64_t begin, int64_t end, int thread) {
                          nvfp4_int8_strips(o, rows, w, 2 * begin, std::min(strips, 2 * end), t,
                                            t_end, scratch + scratch_bytes * size_t(thread));
                        });
  }
}

// From here on a block of weights is worth unpacking for all threads.
constexpr int64_t kManyTokens = 192;

// x in its own type, or as floats or pairs. The two products give the same bits.
void float_product(Context& c, const GemmOutput& out, Tensor x, const LinearWeight& w,
                   Activations activations) {
  using Layout = GemmFactor::Layout;
  const GemmFactor b{.layout = w.is_packed() ? Layout::packed_outer_by_k : Layout::outer_by_k,
                     .outer = w.out,
                     .k = w.in,
                     .dense = w.dense,
                     .packed = w.is_packed() ? w.packed.as<uint8_t>() : nullptr};
  if (x.dim(0) < kManyTokens) {
    const bool pairs =
        activations == Activations::none && gemm_element(x.dtype, b) == GemmElement::bf16_pair;
    gemm_few(c, out, pairs ? pair_activations(c, x) : float_activations(c, x, activations), b);
    return;
  }
  if (activations == Activations::nvfp4) {
    const GemmRows rows = float_activations(c, x, activations);
    x = make_tensor(const_cast<float*>(rows.steps), DType::f32, {rows.count, w.in});
  }
  gemm(c, out, {.layout = Layout::outer_by_k, .outer = x.dim(0), .k = w.in, .dense = x}, b);
}

}  // namespace

void linear(Context& c, Tensor out, Tensor x, const LinearWeight& w, Activations activations) {
  if (x.dim(0) == 0 || w.out == 0) return;
  const float* row_scale = w.row_scale ? w.row_scale.as<float>() : nullptr;
  if (activations == Activations::int8) {
    int8_product(c, {out, row_scale}, x, w);
  } else {
    float_product(c, {.c = out, .column_scale = row_scale}, x, w, activations);
  }
}

}  // namespace nibble::cpu
