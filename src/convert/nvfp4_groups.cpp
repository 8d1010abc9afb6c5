// SPDX-License-Identifier: MIT
#include "convert/nvfp4_groups.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <map>

#include "core/progress.h"
#include "quant/codec.h"
#include "quant/scale_shift.h"

namespace nibble {
namespace {

using Kind = ConvertJob::Kind;

constexpr int64_t kRows = 64;  // read at a time

struct Member {
  ConvertJob* job = nullptr;
  float global = 1;
  ScaleCodes codes;
};

template <class Each>
void for_rows(const TensorSource& source, const LogicalTensor& t, ThreadPool& pool, Each&& each) {
  pool.parallel_for((t.rows + kRows - 1) / kRows, 1, [&](int64_t first, int64_t last, int) {
    std::vector<uint8_t> codes(size_t(kRows * t.cols / 2)), scales(size_t(kRows * t.cols / 16));
    for (int64_t p = first; p < last; ++p) {
      const int64_t n = std::min(kRows, t.rows - p * kRows);
      read_nvfp4_rows(source, t, p * kRows, n, codes.data(), scales.data());
      each(std::span(codes).first(size_t(n * t.cols / 2)),
           std::span(scales).first(size_t(n * t.cols / 16)));
    }
  });
}

ScaleCodes codes_of(const TensorSource& source, const LogicalTensor& t, ThreadPool& pool) {
  std::array<std::atomic<bool>, 128> seen{};
  for_rows(source, t, pool, [&](std::span<uint8_t>, std::span<uint8_t> scales) {
    ScaleCodes own;
    note_scales(scales, own);
    for (size_t c = 0; c < own.size(); ++c) {
      if (own.test(c)) seen[c] = true;
    }
  });
  ScaleCodes all;
  for (size_t c = 0; c < all.size(); ++c) all.set(c, seen[c]);
  return all;
}

float largest_scale(const ScaleCodes& codes) {
  float most = 0;
  for (int c = 0; c < kE4m3NanCode; ++c) {
    if (codes.test(size_t(c))) most = e4m3_value(uint8_t(c));
  }
  return most;
}

// One that changes nothing; 0: there is none.
float exact_scale(const std::vector<Member>& members) {
  float wanted = 0;
  for (const Member& m : members) {
    if (!power_of_two(m.global / members[0].global)) return 0;
    wanted = std::max(wanted, std::ldexp(m.global, -most_shift(m.codes)));
  }
  for (const Member& m : members) {
    if (!can_shift(m.codes, exponent_of(m.global / wanted))) return 0;
  }
  return wanted;
}

// That of `keeper`, moved by powers of two until the scales of all fit.
float scale_for(const std::vector<Member>& members, const Member& keeper) {
  float g = std::ldexp(keeper.global, -most_shift(keeper.codes));
  for (const Member& m : members) {
    while (largest_scale(m.codes) * (m.global / g) > kE4m3Max) g *= 2;
  }
  return g;
}

BlockChanges changes(const TensorSource& source, const Member& m, float to, ThreadPool& pool) {
  std::atomic<int64_t> codes{0}, scales{0};
  for_rows(source, *m.job->from, pool, [&](std::span<uint8_t> c, std::span<uint8_t> s) {
    const BlockChanges here = rescale_blocks(c, s, m.global, to);
    codes += here.codes;
    scales += here.scales;
  });
  return {codes, scales};
}

void settle(const TensorSource& source, std::vector<Member>& members, ThreadPool& pool,
            ConvertSummary& summary) {
  float best = exact_scale(members);
  if (best == 0) {
    BlockChanges least{INT64_MAX, INT64_MAX};
    for (const Member& keeper : members) {
      const float g = scale_for(members, keeper);
      BlockChanges sum{0, 0};
      for (const Member& m : members) {
        const BlockChanges one = changes(source, m, g, pool);
        sum.codes += one.codes, sum.scales += one.scales;
      }
      if (sum < least) least = sum, best = g;
    }
    summary.changed_codes += least.codes;
    summary.changed_scales += least.scales;
  }
  for (Member& m : members) m.job->global = best;
}

}  // namespace

std::string fused_name(const std::string& name) {
  const std::pair<std::string_view, std::string_view> parts[] = {{".q_proj.weight", ".qkv"},
                                                                 {".k_proj.weight", ".qkv"},
                                                                 {".v_proj.weight", ".qkv"},
                                                                 {".gate_proj.weight", ".gate_up"},
                                                                 {".up_proj.weight", ".gate_up"}};
  for (const auto& [end, fused] : parts) {
    if (name.ends_with(end)) {
      return name.substr(0, name.size() - end.size()) + std::string(fused);
    }
  }
  return name;
}

void share_global_scales(const TensorSource& source, std::vector<ConvertJob>& jobs,
                         ThreadPool& pool, ConvertSummary& summary) {
  std::map<std::string, std::vector<Member>> packed;
  std::map<std::string, std::vector<const LogicalTensor*>> made;
  // They are read once, and again for each matrix whose global scale may be the one for all.
  const auto is_packed = [](const ConvertJob& job) { return job.kind == Kind::copy_packed; };
  const auto count = uint64_t(std::ranges::count_if(jobs, is_packed));
  Progress progress("comparing scales", 2 * count, "steps");
  for (ConvertJob& job : jobs) {
    if (is_packed(job)) {
      progress.advance(1);
      packed[fused_name(job.name)].push_back(
          {&job, read_global_scale(source, *job.from), codes_of(source, *job.from, pool)});
    }
    if (job.kind == Kind::quantise) made[fused_name(job.name)].push_back(job.from);
  }
  for (auto& [name, members] : packed) {
    settle(source, members, pool, summary);
    progress.advance(members.size());
  }
  for (ConvertJob& job : jobs) {
    if (job.kind == Kind::quantise) job.group = made[fused_name(job.name)];
  }
}

}  // namespace nibble
