// SPDX-License-Identifier: MIT
#include "train/export_weights.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

#include "backend/download.h"
#include "convert/convert.h"
#include "core/half.h"
#include "core/progress.h"
#include "formats/container.h"

namespace nibble {

std::optional<DType> StateValues::master_type(const ParamSpec& p) const {
  if (state_.shared_out(StateBytes::master, p)) {
    return master_type_of(state_.groups(), state_.settings(), p);
  }
  const Tensor master = state_.master_of(p);
  if (!master) return std::nullopt;
  return master.dtype;
}

std::vector<float> StateValues::master(const ParamSpec& p, int64_t begin, int64_t count) const {
  if (state_.shared_out(StateBytes::master, p)) {
    const DType type = *master_type(p);
    const auto size = int64_t(dtype_bytes(type));
    const auto& table = state_.groups().table;
    const auto index = size_t(std::ranges::find(table, p.name, &ParamSpec::name) - table.begin());
    std::vector<std::byte> bytes(size_t(count * size));
    state_.read_bytes(StateBytes::master, index, uint64_t(begin * size), bytes);
    std::vector<float> values(static_cast<size_t>(count));
    for (size_t i = 0; i < values.size(); ++i) {
      if (type == DType::bf16) {
        values[i] = to_float(reinterpret_cast<const bf16_t*>(bytes.data())[i]);
      } else {
        std::memcpy(&values[i], bytes.data() + i * sizeof(float), sizeof(float));
      }
    }
    return values;
  }
  const Tensor master = state_.master_of(p);
  return download_floats(state_.backend(), master.view({master.numel()}).slice(begin, count));
}

bool StateValues::packed(const ParamSpec& p, int64_t row, int64_t rows, std::span<uint8_t> codes,
                         std::span<uint8_t> scales) const {
  if (!state_.has_packed(p)) return false;
  const auto& table = state_.groups().table;
  state_.read_packed(*std::ranges::find(table, p.name, &ParamSpec::name), row, rows, codes, scales);
  return true;
}

bool keeps_form(const TensorSource& base, Container container) {
  // A GGUF is made anew: its blocks are those of the plan, not of the input.
  if (base.format() == "gguf" || container == Container::gguf) return false;
  return (container == Container::dat) == (base.format() == "dat");
}

ExportSummary export_weights(const TensorSource& base, const TrainState& state, const Config& c,
                             const std::filesystem::path& out, ThreadPool& pool,
                             const GgufMetadata& metadata) {
  refuse_overwrite_of_input(base, out);
  const StateValues values(state);
  const Container container = container_for(out);
  if (!keeps_form(base, container)) {
    const TrainedSource source(base, values, RawTypes::of_master);
    ConvertSettings settings;
    settings.container = container;
    const bool nvfp4 = state.settings().recipe == Recipe::nvfp4;
    const bool holds = container == Container::dat || container == Container::gguf;
    settings.packing = holds && nvfp4 ? Packing::nvfp4 : Packing::none;
    settings.metadata = metadata;
    if (settings.packing == Packing::nvfp4 && state.settings().head() != Recipe::nvfp4) {
      settings.quantize = fmt::format("({})\\.weight$", fmt::join(linear_layer_names(), "|"));
    }
    settings.rule = state.settings().rule;
    settings.keep_f32_vectors = true;
    Config trained = c;
    trained.tied = state.config().tied;
    const ConvertSummary done = convert_weights(source, &trained, out, settings, pool);
    return {done.entries, done.payload_bytes};
  }
  const TrainedSource source(base, values, RawTypes::of_file);
  const auto writer = make_writer(container, out, source.tensors());
  Progress progress("exporting", writer->payload_bytes());
  std::vector<std::byte> bytes;
  for (const TensorInfo& info : source.tensors()) {
    // Whole rows, a few MiB of them.
    const uint64_t rows = info.shape.empty() ? 1 : uint64_t(std::max<int64_t>(1, info.shape[0]));
    const uint64_t row = std::max<uint64_t>(1, info.n_bytes / rows);
    const uint64_t step = std::max<uint64_t>(1, (4 << 20) / row) * row;
    for (uint64_t at = 0; at < info.n_bytes; at += step) {
      bytes.resize(size_t(std::min(step, info.n_bytes - at)));
      source.read(info, at, bytes);
      writer->append(bytes);
      progress.advance(bytes.size());
    }
  }
  writer->finish();
  return {writer->tensors().size(), writer->payload_bytes()};
}

}  // namespace nibble
