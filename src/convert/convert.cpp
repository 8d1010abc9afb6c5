// SPDX-License-Identifier: MIT
#include "convert/convert.h"

#include "convert/converter.h"
#include "model/gguf_model.h"

namespace nibble {

ConvertSummary convert_weights(const TensorSource& input, const Config* config,
                               const std::filesystem::path& out, const ConvertSettings& settings,
                               ThreadPool& pool) {
  ConvertSummary summary;
  std::unique_ptr<TensorSource> ordered;
  if (settings.container == Container::gguf && config) ordered = in_gguf_order(input, *config);
  const TensorSource& source = ordered ? *ordered : input;
  const WeightIndex index(source);
  ConvertPlan plan = plan_conversion(index, config, settings, pool, summary);
  const auto writer = make_writer(settings.container, out, std::move(plan.entries), plan.metadata,
                                  settings.max_shard_bytes);
  summary.entries = writer->tensors().size();
  summary.payload_bytes = writer->payload_bytes();
  Converter converter(source, *writer, pool, settings, summary);
  for (const ConvertJob& job : plan.jobs) converter.run(job);
  writer->finish();
  return summary;
}

}  // namespace nibble
