// SPDX-License-Identifier: MIT
// Blocking and threads of the matrix product: B's panels are packed once by all threads, then
// rectangles of C are taken by whichever thread is free. No choice made here changes a result.
#include "backends/cpu/kernels/gemm.h"

#include <algorithm>

#include "backends/cpu/kernels/kernels.h"
#include "backends/cpu/simd/target_control.h"

namespace nibble::cpu {
namespace {

constexpr int64_t kPanelSteps = 2 << 20;  // of B at once: 8 MiB, for a third-level cache
constexpr int64_t kTaskRows = 144;        // of A at once: 144 KiB, for a second-level cache
constexpr int64_t kTaskCols = 512;        // sums of 144 by 512: 288 KiB
constexpr int64_t kMinColTiles = 4;
constexpr int64_t kPackPanels = 4;          // at once, so that whole rows of some length are read
constexpr int64_t kSmallProduct = 1 << 18;  // multiply-adds that do not pay for waking threads

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Tiles of C per task: a few tasks per thread, so that none waits long for the last one.
GemmTile task_tiles(int64_t row_tiles, int64_t col_tiles, GemmTile tile, int64_t threads) {
  const int64_t wanted = threads == 1 ? 1 : 4 * threads;
  const int64_t most_rows = std::max<int64_t>(1, kTaskRows / tile.rows);
  const int64_t rows =
      std::clamp<int64_t>(row_tiles / wanted, std::min<int64_t>(4, most_rows), most_rows);
  const int64_t row_tasks = ceil_div(row_tiles, rows);
  const int64_t col_tasks = std::max(ceil_div(col_tiles * tile.cols, kTaskCols),
                                     std::min(ceil_div(wanted, row_tasks), col_tiles));
  return {std::min(rows, row_tiles), ceil_div(col_tiles, col_tasks)};
}

}  // namespace

// A bf16 product is exact in fp32, NVFP4 is exact in bf16; a scale along K is not.
GemmElement gemm_element(DType a, const GemmFactor& b) {
  const bool exact = a == DType::bf16 && !b.k_scale && (b.packed || b.dense.dtype == DType::bf16);
  return exact && use_bf16_pairs() ? GemmElement::bf16_pair : GemmElement::f32;
}

void gemm(Context& c, const GemmOutput& out, const GemmFactor& a, const GemmFactor& b) {
  const int64_t m = out.c.dim(0), n = out.c.dim(1);
  if (m == 0 || n == 0) return;
  const GemmTile tile = gemm_tile();
  const int64_t row_tiles = ceil_div(m, tile.rows), all_panels = ceil_div(n, tile.cols);
  const GemmElement element = gemm_element(a.dense.dtype, b);
  const int64_t panel_steps = gemm_steps(element, b.k) * tile.cols;
  const int64_t fit = kPanelSteps / std::max<int64_t>(1, panel_steps);
  const int64_t block = std::min(all_panels, std::max(fit, kMinColTiles));
  const bool small = m * n <= kSmallProduct / std::max<int64_t>(1, a.k);
  const int64_t threads = small ? 1 : c.pool.size();
  const GemmTile task = task_tiles(row_tiles, block, tile, threads);
  const GemmScratch scratch = gemm_scratch(element, a.k, task.rows, task.cols);
  const int64_t thread_floats = scratch.a_panels + scratch.tiles;
  float* scratch_floats = c.thread_scratch.get_as<float>(size_t(thread_floats * threads));
  float* panels = c.panels.get_as<float>(size_t(block * panel_steps));
  for (int64_t first = 0; first < all_panels; first += block) {
    const int64_t count = std::min(block, all_panels - first);
    c.pool.parallel_for(count, small ? count : kPackPanels, [&](int64_t begin, int64_t end, int) {
      gemm_pack_b(element, b, first + begin, first + end, panels + begin * panel_steps);
    });
    const int64_t row_tasks = ceil_div(row_tiles, task.rows);
    const int64_t col_tasks = ceil_div(count, task.cols);
    const int64_t tasks = row_tasks * col_tasks;
    c.pool.parallel_for(tasks, small ? tasks : 1, [&](int64_t begin, int64_t end, int thread) {
      float* mine = scratch_floats + thread * thread_floats;
      for (int64_t t = begin; t < end; ++t) {
        const int64_t row = t / col_tasks * task.rows, col = t % col_tasks * task.cols;
        gemm_task(out, a,
                  {element, row, std::min(row_tiles, row + task.rows), first + col,
                   first + std::min(count, col + task.cols), panels, first, mine,
                   mine + scratch.a_panels});
      }
    });
  }
}

void gemm_few(Context& c, const GemmOutput& out, const GemmRows& a, const GemmFactor& b) {
  const int64_t n = out.c.dim(1);
  if (a.count == 0 || n == 0) return;
  const int64_t panels = ceil_div(n, gemm_tile().cols), threads = c.pool.size();
  const int64_t thread_floats = gemm_few_scratch(a.count);
  float* floats = c.thread_scratch.get_as<float>(size_t(thread_floats * threads));
  const bool small = a.count * n <= kSmallProduct / std::max<int64_t>(1, b.k);
  const int64_t grain = small ? panels : std::max<int64_t>(1, panels / (4 * threads));
  c.pool.parallel_for(panels, grain, [&](int64_t begin, int64_t end, int thread) {
    gemm_few_panels(out, a, b, begin, end, floats + thread * thread_floats);
  });
}

}  // namespace nibble::cpu
