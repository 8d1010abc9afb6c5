// SPDX-License-Identifier: MIT
// The weights of a run as a file: convert/trained_source.h over what the run has in memory.
#pragma once
#include <filesystem>

#include "convert/trained_source.h"
#include "core/thread_pool.h"
#include "formats/container.h"
#include "train/state.h"

namespace nibble {

class StateValues final : public TrainedValues {
 public:
  explicit StateValues(const TrainState& state) : state_(state) {}  // must outlive it
  const std::vector<ParamSpec>& table() const override { return state_.groups().table; }
  bool trained(size_t i) const override { return state_.groups().trained[i] != 0; }
  bool tied() const override { return state_.config().tied; }
  ScaleRule rule() const override { return state_.settings().rule; }
  std::optional<DType> master_type(const ParamSpec& param) const override;
  std::vector<float> master(const ParamSpec& param, int64_t begin, int64_t count) const override;
  bool packed(const ParamSpec& param, int64_t row, int64_t rows, std::span<uint8_t> codes,
              std::span<uint8_t> scales) const override;

 private:
  const TrainState& state_;
};

struct ExportSummary {
  size_t entries = 0;
  uint64_t payload_bytes = 0;
};

// Writes the trained model to `out` (a file of the table in formats/container.h, or a directory
// that exists): the input's own form where the container is the same, converted otherwise (a new
// .dat or .gguf holds NVFP4 where the run's recipe says so). `config` is the stored one, `metadata`
// that of a GGUF. Nothing appears under the name before it is whole; writing over the input is
// refused.
ExportSummary export_weights(const TensorSource& base, const TrainState& state,
                             const Config& config, const std::filesystem::path& out,
                             ThreadPool& pool, const GgufMetadata& metadata = GgufMetadata());
// Whether that is the form of the input, byte for byte where nothing was learned.
bool keeps_form(const TensorSource& base, Container container);

}  // namespace nibble
