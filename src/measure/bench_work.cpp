// SPDX-License-Identifier: MIT
#include "measure/bench_work.h"

#include <algorithm>

#include "core/error.h"

namespace nibble {
namespace {

// Bytes that carry information: a backend's own padding is no work.
double weight_bytes_of(const LinearWeight& w) {
  const double n = double(w.out) * double(w.in);
  const double matrix = w.is_packed() ? n / 2 + n / 16 : double(w.dense.bytes());
  return matrix + (w.row_scale ? double(w.row_scale.bytes()) : 0);
}

}  // namespace

Work forward_work(const Model& model, int64_t tokens, int64_t past, DType cache,
                  int64_t sequences) {
  const Config& c = model.config;
  const double s = double(sequences), n = s * double(tokens), keys = s * double(past + tokens);
  Work work;
  for (const BlockWeights& b : model.weights.block) {
    for (const auto& m : b.linears()) {
      const LinearWeight& w = b.*m.at;
      work.bytes += weight_bytes_of(w);
      work.flops += 2 * n * double(w.out) * double(w.in);
    }
    for (const auto& m : b.vectors()) {
      if (b.*m.at) work.bytes += double((b.*m.at).bytes());  // what the family has
    }
    work.bytes += 2 * keys * double(c.Hkv * c.D) * double(dtype_bytes(cache));
    // Scores and their use, for every query over the keys it may see.
    const double t = double(tokens), pairs = s * (t * double(past) + t * (t + 1) / 2);
    work.flops += 4 * pairs * double(c.Hq * c.D);
  }
  work.bytes += weight_bytes_of(model.weights.head) + double(model.weights.final_norm.bytes()) +
                n * double(c.C) * double(dtype_bytes(model.weights.embed.dtype));
  work.flops += s * 2 * double(c.V) * double(c.C);
  return work;
}

Quantiles quantiles(std::vector<double> samples) {
  if (samples.empty()) throw_internal("quantiles of nothing");
  std::sort(samples.begin(), samples.end());
  const auto at = [&](double q) {
    const double x = q * double(samples.size() - 1);
    const size_t i = size_t(x), j = std::min(i + 1, samples.size() - 1);
    return samples[i] + (x - double(i)) * (samples[j] - samples[i]);
  };
  return {at(0.1), at(0.5), at(0.9)};
}

}  // namespace nibble
