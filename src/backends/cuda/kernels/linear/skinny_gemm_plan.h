// SPDX-License-Identifier: MIT
// Split-K planning of skinny_gemm_wgmma.cu: number of K slices (= cluster size), warpgroups a
// block, pipeline depth, and the use of shared memory.
#pragma once
#include <algorithm>
#include <array>

#include "backends/cuda/context.h"
#include "backends/cuda/kernels/linear/skinny_gemm_reduce.cuh"

namespace nibble::cuda {

struct SplitKPlan {
  int slices = 0, clusters = 0, groups = 0;    // slices 0: no plan; groups: warpgroups of a block
  int stage_units = 0, stages = 0, slots = 0;  // as in ClusterGemmArgs
};

// Shared memory of the tokens of a unit: skinny_gemm_load.cuh.
constexpr int half_bytes(int tokens) { return tokens * 16; }
constexpr int piece_bytes(int tokens) { return 4 * half_bytes(tokens) + 32; }
constexpr int unit_bytes(int tokens) { return 4 * piece_bytes(tokens); }

// Shared memory left free, where possible, for the small kernels before and after, so that they can
// be resident beside this one (PDL).
constexpr size_t kSparedBytes = 6144;

// Shared memory: tokens and receive buffers; weight stages.
constexpr size_t fixed_bytes(int tokens, int64_t units, int slices, int groups, int slots) {
  return size_t((units + slices - 1) / slices * unit_bytes(tokens)) +
         size_t(groups * slots) * size_t(slot_bytes(tokens, slices) + 16);
}
constexpr size_t ring_bytes(int groups, int stage_units, int stages) {
  return size_t(groups * 4 * stages) * (size_t(stage_units) * kUnitBytes + 8);
}

class SplitKPlanner {
 public:
  static constexpr int kMaxGroups = 5;
  using Clusters = decltype(KernelLimits::clusters);

  SplitKPlanner(int tokens, int units, size_t shared)
      : tokens_(tokens), units_(units), shared_(shared) {}

  // Whether a plan with eight slices exists: every device with clusters can run that.
  bool fits() const {
    const int slices = units_ >= 8 ? 8 : 1;
    return fixed_bytes(tokens_, units_, slices, 1, 2) + ring_bytes(1, 1, 1) <= shared_;
  }

  // With SwiGLU the slices are those of the plain product, so that the order of sums, and hence the
  // bits, are, too.
  SplitKPlan plan(int strips, bool swiglu, const Clusters& clusters_of) const {
    SplitKPlan best;
    double least = 1e30;
    for (int slices = 1; slices <= KernelLimits::kMaxCluster; slices *= 2) {
      const int clusters = std::min(clusters_of[size_t(slices)], strips);
      if (clusters == 0 || units_ < slices) continue;
      const SplitKPlan of_slices = plan_warpgroups(slices, clusters, strips, kTileStrips);
      const double clocks = of_slices.slices ? estimated_clocks(of_slices, strips) : 1e30;
      if (clocks < least) least = clocks, best = of_slices;
    }
    if (!swiglu || best.slices == 0) return best;
    return plan_warpgroups(best.slices, std::min(best.clusters, strips / 2), strips / 2,
                           kTileStrips / 2);
  }

 private:
  static int rounded_up(int a, int b) { return (a + b - 1) / b; }

  // One tile a warpgroup where that suffices; else four warpgroups, which leave room for the weight
  // stages.
  SplitKPlan plan_warpgroups(int slices, int clusters, int strips, int strips_of_tile) const {
    const int tiles = rounded_up(rounded_up(strips, clusters), strips_of_tile);
    for (int groups = tiles <= kMaxGroups ? tiles : 4; groups > 0; --groups) {
      const int rounds = rounded_up(tiles, groups), slots = std::min(rounds, 2);
      SplitKPlan plan{slices, clusters, groups, 0, 0, slots};
      const size_t fixed = fixed_bytes(tokens_, units_, slices, groups, slots);
      for (size_t spared : {kSparedBytes, size_t(0)}) {
        if (fixed + spared > shared_) continue;
        if (plan_stages(plan, shared_ - fixed - spared, rounds)) return plan;
      }
    }
    return {};
  }

  // Few large copies, but at least one in flight while another is consumed.
  bool plan_stages(SplitKPlan& plan, size_t room, int rounds) const {
    constexpr int kMostUnits = 9;  // in flight a warp
    const int units = rounded_up(units_, plan.slices);
    for (int least : {2, 1}) {
      for (int most = std::min(units, 4); most > 0; --most) {
        const int copies = rounded_up(units, most);
        plan.stage_units = rounded_up(units, copies);
        const int needed = copies * rounds;
        plan.stages = std::min(needed, std::max(2, kMostUnits / plan.stage_units));
        while (plan.stages > 0 && ring_bytes(plan.groups, plan.stage_units, plan.stages) > room)
          --plan.stages;
        if (plan.stages >= std::min(needed, least)) return true;
      }
    }
    return false;
  }

  // Cost model from measurements on an H200: launch and epilogue, loading the tokens, the products
  // of a unit and 64 rows (bound by issue slots), the exchange of a tile, weights that come too
  // late.
  double estimated_clocks(const SplitKPlan& c, int strips) const {
    const int units = rounded_up(units_, c.slices);
    const int tiles = rounded_up(rounded_up(strips, c.clusters), kTileStrips);
    const double tokens_kib = units * unit_bytes(tokens_) / 1024.0;
    const double ring_kib = double(ring_bytes(c.groups, c.stage_units, c.stages)) / 1024.0;
    double work = double(tiles * units) * (210 + 2.8 * tokens_);
    if (rounded_up(tiles, c.groups) > 1) work *= 1 + 0.3 * std::max(0.0, 1 - ring_kib / 64);
    if (c.groups == 1) work *= 1.2;
    return 5500 + 64 * tokens_kib + work + 300 * tiles + 800 * (rounded_up(tiles, c.groups) - 1);
  }

  int tokens_, units_;
  size_t shared_;
};

}  // namespace nibble::cuda
