// SPDX-License-Identifier: MIT
// Private to convert: what each tensor becomes in a GGUF.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "convert/convert_plan.h"

namespace nibble {

class GgufPlan {
 public:
  // All must outlive it; `config` is not null for a GGUF.
  GgufPlan(const WeightIndex& index, const Config* config, const ConvertSettings& settings)
      : index_(index), config_(config), settings_(settings) {}

  // `selected`: a matrix that the packing asked for is meant for.
  ConvertJob job_for(const LogicalTensor& t, const std::string& name, bool selected) const;
  std::vector<TensorInfo> entries_of(const ConvertJob& job) const;
  // Adds what a GGUF has beside the parameters, and says which matrices became another type than
  // the one asked for.
  void complete(const Config& config, ConvertPlan& plan, ConvertSummary& summary) const;

 private:
  ConvertJob plain(ConvertJob job) const;
  ConvertJob in_blocks(ConvertJob job, const BlockType& type) const;
  ConvertJob in_nvfp4(ConvertJob job) const;
  ConvertJob in_another(ConvertJob job, const std::string& why) const;
  void note_other(std::string_view what, const std::string& why, const std::string& name) const;

  const WeightIndex& index_;
  const Config* config_;
  const ConvertSettings& settings_;
  // Names of matrices by what they became and why, layers aside.
  mutable std::map<std::string, std::map<std::string, int>> others_;
};

// Whether the global scale of a packed matrix can go into its scales without a change of values.
bool can_fold(const TensorSource& source, const LogicalTensor& t);

// The key that names the type most elements have.
void add_gguf_file_type(const std::vector<TensorInfo>& entries, GgufMetadata& metadata);

}  // namespace nibble
