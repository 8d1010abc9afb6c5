// SPDX-License-Identifier: MIT
#include "inspect/trace_io.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>

#include "core/error.h"
#include "formats/safetensors.h"

namespace nibble {
namespace {

std::vector<int64_t> read_integers(const TensorSource& source, const TensorInfo& t) {
  if (t.shape.size() != 2 || t.numel() < 1) {
    throw_format("{}: '{}' is {}, expected int64 [B, T]", source.describe(), t.name, t.describe());
  }
  std::vector<int64_t> out(size_t(t.numel()));
  if (t.dtype == DType::i64) {
    source.read(t, 0, std::as_writable_bytes(std::span(out)));
  } else if (t.dtype == DType::i32) {
    std::vector<int32_t> narrow(out.size());
    source.read(t, 0, std::as_writable_bytes(std::span(narrow)));
    std::copy(narrow.begin(), narrow.end(), out.begin());
  } else {
    throw_format("{}: '{}' is {}, expected int64 [B, T]", source.describe(), t.name, t.describe());
  }
  return out;
}

}  // namespace

TraceInput read_trace_input(const std::filesystem::path& file) {
  const auto source = open_safetensors(file);
  const TensorInfo& ids = source->at("input_ids");
  TraceInput in;
  in.ids = read_integers(*source, ids);
  in.B = ids.shape[0];
  in.T = ids.shape[1];
  if (const TensorInfo* labels = source->find("labels")) {
    if (labels->shape != ids.shape) {
      throw_format("{}: labels are {}, input_ids are {}: both must be [B, T]", file.string(),
                   labels->describe(), ids.describe());
    }
    in.labels = read_integers(*source, *labels);
  }
  return in;
}

void write_trace(const std::filesystem::path& out, std::span<const TraceTensor> tensors,
                 const TensorSource::Metadata& metadata) {
  std::vector<TensorInfo> infos;
  for (const TraceTensor& t : tensors) {
    TensorInfo info;
    info.name = t.name;
    info.dtype = DType::f32;
    info.shape = t.shape;
    infos.push_back(std::move(info));
  }
  SafetensorsWriter writer(out, std::move(infos), metadata);
  for (const TraceTensor& t : tensors) writer.append(std::as_bytes(t.values));
  writer.finish();
}

std::vector<TopToken> top_tokens(std::span<const float> logits, int64_t k) {
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto key = [&](int32_t id) {
    const float v = logits[size_t(id)];
    return std::isnan(v) ? -std::numeric_limits<float>::infinity() : v;
  };
  const size_t n = std::min(order.size(), size_t(std::max<int64_t>(0, k)));
  std::partial_sort(
      order.begin(), order.begin() + std::ptrdiff_t(n), order.end(),
      [&](int32_t a, int32_t b) { return key(a) != key(b) ? key(a) > key(b) : a < b; });
  if (n == 0) return {};
  const double largest = double(key(order[0]));
  double sum = 0;
  for (size_t i = 0; i < logits.size(); ++i) sum += std::exp(double(key(int32_t(i))) - largest);
  std::vector<TopToken> top;
  for (size_t i = 0; i < n; ++i) {
    const float logit = logits[size_t(order[i])];
    top.push_back({order[i], logit, std::exp(double(key(order[i])) - largest) / sum});
  }
  return top;
}

std::string quoted_text(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace nibble
