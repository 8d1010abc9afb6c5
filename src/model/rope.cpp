// SPDX-License-Identifier: MIT
#include "model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace nibble {
namespace {

constexpr double kTurn = 2 * std::numbers::pi;

// Between the pairs that turn more than high_freq_factor times over the original positions (left
// as they are) and those that turn less than low_freq_factor times (slowed by the factor).
double llama3_turns(const RopeSpec& r, double turns) {
  const double rounds = r.original_positions * turns / kTurn;
  const double slowed = turns / r.factor;
  if (rounds < r.low_freq_factor) return slowed;
  if (rounds > r.high_freq_factor) return turns;
  const double fast = (rounds - r.low_freq_factor) / (r.high_freq_factor - r.low_freq_factor);
  return (1 - fast) * slowed + fast * turns;
}

// The pair, as a real number, that turns `rounds` times over the original positions.
double yarn_pair(const RopeSpec& r, double rounds, double width) {
  return width * std::log(r.original_positions / (rounds * kTurn)) / (2 * std::log(r.theta));
}

struct YarnRamp {
  double begin, end;
  YarnRamp(const RopeSpec& r, double width)
      : begin(yarn_pair(r, r.beta_fast, width)), end(yarn_pair(r, r.beta_slow, width)) {
    if (r.truncate) begin = std::floor(begin), end = std::ceil(end);
    begin = std::max(begin, 0.0), end = std::min(end, width - 1);
    if (begin == end) end += 0.001;
  }
  double slow(double pair) const { return std::clamp((pair - begin) / (end - begin), 0.0, 1.0); }
};

}  // namespace

std::string_view rope_kind_name(RopeKind kind) {
  switch (kind) {
    case RopeKind::linear: return "linear";
    case RopeKind::llama3: return "llama3";
    case RopeKind::yarn: return "yarn";
    default: return "default";
  }
}

double yarn_attention_factor(double factor, double mscale, double mscale_all_dim) {
  const auto scale = [&](double m) { return factor <= 1 ? 1.0 : 0.1 * m * std::log(factor) + 1; };
  return mscale != 0 && mscale_all_dim != 0 ? scale(mscale) / scale(mscale_all_dim) : scale(1);
}

RopeFrequencies rope_frequencies(const RopeSpec& r, int64_t head_width) {
  RopeFrequencies f;
  const double width = double(head_width);
  const YarnRamp ramp(r, width);
  for (int64_t i = 0; i < head_width / 2; ++i) {
    double turns = std::pow(r.theta, -2.0 * double(i) / width);
    if (r.kind == RopeKind::linear) turns /= r.factor;
    if (r.kind == RopeKind::llama3) turns = llama3_turns(r, turns);
    if (r.kind == RopeKind::yarn) {
      const double slow = ramp.slow(double(i));
      turns = slow * turns / r.factor + (1 - slow) * turns;
    }
    f.turns.push_back(turns);
  }
  if (r.kind == RopeKind::yarn) f.factor = r.attention_factor;
  return f;
}

StillPairs still_pairs(const RopeFrequencies& f, int64_t positions) {
  const auto turns = [&](double t) { return t * double(positions) >= 1; };
  const auto last = std::find_if(f.turns.rbegin(), f.turns.rend(), turns);
  return {f.turns.rend() - last, float(f.factor)};
}

}  // namespace nibble
