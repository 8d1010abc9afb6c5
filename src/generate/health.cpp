// SPDX-License-Identifier: MIT
#include "generate/health.h"

#include <algorithm>
#include <cmath>

#include "backend/download.h"
#include "backend/recording_backend.h"
#include "core/error.h"
#include "generate/reply.h"
#include "model/params.h"
#include "quant/codec.h"
#include "tokenizer/unicode.h"

namespace nibble {
namespace {

constexpr int64_t kChunkElements = 4 << 20;
constexpr size_t kShortestJudged = 4;

// Where in `ids` a phrase has been said kRepeats times in a row, or nothing.
std::optional<size_t> repeats_at(std::span<const int32_t> ids) {
  for (size_t n = 1; n <= ids.size(); ++n) {
    if (tail_repeats(ids.first(n))) return n;
  }
  return std::nullopt;
}

// Looks at pieces of one tensor and remembers what it saw.
class Scan {
 public:
  void add(std::span<const float> values) {
    for (float v : values) {
      if (std::isfinite(v)) {
        largest_ = std::max(largest_, std::fabs(v));
      } else {
        if (nan_ + inf_ == 0) first_ = n_;
        nan_ += std::isnan(v);
        inf_ += std::isinf(v);
      }
      ++n_;
    }
  }
  int64_t count() const { return n_; }
  float largest() const { return largest_; }
  std::optional<BadValues> bad(const std::string& place, int64_t width) const {
    if (nan_ + inf_ == 0) return std::nullopt;
    const std::string at = width > 0 && n_ > width
                               ? fmt::format("row {}, element {}", first_ / width, first_ % width)
                               : fmt::format("element {}", first_);
    return BadValues{
        place, fmt::format("{} NaN, {} Inf in {} values, the first at {}", nan_, inf_, n_, at)};
  }

 private:
  int64_t n_ = 0, nan_ = 0, inf_ = 0, first_ = 0;
  float largest_ = 0;
};

void scan_dense(Backend& be, Tensor t, Scan& scan) {
  const int64_t step = std::max<int64_t>(1, kChunkElements / std::max<int64_t>(1, t.inner()));
  for (int64_t r = 0; r < t.dim(0); r += step) {
    scan.add(download_floats(be, t.slice(r, std::min(step, t.dim(0) - r))));
  }
}

// The scales of rows [first, first + rows), each times its row's global scale.
void scan_scales(Backend& be, const LinearWeight& w, int64_t first, int64_t rows, Scan& scan) {
  const int64_t per_row = w.in / 16, step = std::max<int64_t>(1, kChunkElements / w.in);
  std::vector<uint8_t> codes, scales;
  std::vector<float> values, global;
  for (int64_t r = first; r < first + rows; r += step) {
    const int64_t count = std::min(step, first + rows - r);
    codes.resize(size_t(count * w.in / 2));
    scales.resize(size_t(count * per_row));
    be.unpack_rows(w, r, count, codes, scales);
    if (w.row_scale) global = download_floats(be, w.row_scale.slice(r, count));
    values.resize(scales.size());
    for (size_t i = 0; i < scales.size(); ++i) {
      values[i] = e4m3_value(scales[i]) * (global.empty() ? 1.0f : global[i / size_t(per_row)]);
    }
    scan.add(values);
  }
}

}  // namespace

std::optional<BadValues> find_bad_values(const std::string& place, std::span<const float> values,
                                         int64_t width) {
  Scan scan;
  scan.add(values);
  return scan.bad(place, width);
}

WeightHealth check_weights(Backend& be, const Model& model) {
  WeightHealth health;
  for (const ParamSpec& p : parameter_table(model.config)) {
    const auto slot = slot_of(model.weights, p);
    Scan scan;
    int64_t width = p.shape.back();
    std::string place = p.name;
    if (slot.tensor) {
      scan_dense(be, rows_of_param(*slot.tensor, p), scan);
    } else if (slot.linear->is_packed()) {
      scan_scales(be, *slot.linear, p.row_offset, p.shape[0], scan);
      width /= 16;
      place += ".scale";
    } else {
      if (slot.linear->dense.data == model.weights.embed.data) continue;  // tied: looked at already
      scan_dense(be, slot.linear->dense.slice(p.row_offset, p.shape[0]), scan);
    }
    if (auto bad = scan.bad(place, width)) health.bad.push_back(std::move(*bad));
    ++health.tensors;
    health.values += scan.count();
    if (scan.largest() > health.largest) {
      health.largest = scan.largest();
      health.largest_name = place;
    }
  }
  return health;
}

ActivationHealth check_activations(Backend& be, const Model& model, const EngineOptions& options,
                                   std::span<const int32_t> tokens) {
  ActivationHealth health;
  RecordingBackend recording(be, [&](Recorded r) {
    ++health.tensors;
    Scan scan;
    scan.add(r.values);
    if (!health.first_bad) {
      const int64_t rows = r.shape.empty() ? 1 : std::max<int64_t>(1, r.shape[0]);
      health.first_bad = scan.bad(r.name, int64_t(r.values.size()) / rows);
    }
    if (scan.largest() > health.largest) {
      health.largest = scan.largest();
      health.largest_name = r.name;
    }
  });
  Engine engine(recording, model, options);
  engine.extend(tokens);
  return health;
}

std::optional<std::string> collapse_reason(std::span<const int32_t> ids, std::string_view text) {
  if (ids.size() < kShortestJudged) return std::nullopt;
  for (size_t n = 1; n <= ids.size(); ++n) {
    if (tail_collapses(ids.first(n))) return "token 0 again and again";
  }
  if (text.find("!!!!") != std::string_view::npos) return "the reply contains \"!!!!\"";
  if (std::all_of(ids.begin(), ids.end(), [&](int32_t id) { return id == ids[0]; })) {
    return fmt::format("token {} and nothing else, {} times", ids[0], ids.size());
  }
  return std::nullopt;
}

std::optional<std::string> repetition_reason(std::span<const int32_t> ids, std::string_view text) {
  if (auto why = collapse_reason(ids, text)) return why;
  if (const auto at = repeats_at(ids)) return fmt::format("it goes in circles by token {}", *at);
  // The same characters may be other tokens each time round. Spaces are no character to count.
  std::vector<int32_t> characters;
  const std::string valid = repair_utf8(text);
  for (size_t at = 0; at < valid.size();) {
    const CodePoint c = decode_valid(valid.data() + at);
    at += c.length;
    if (UnicodeTable::instance().char_class(c.value) != CharClass::space) {
      characters.push_back(int32_t(c.value));
    }
  }
  if (const auto at = repeats_at(characters)) {
    return fmt::format("it goes in circles by character {}", *at);
  }
  return std::nullopt;
}

}  // namespace nibble
