// SPDX-License-Identifier: MIT
// The checks of `nibble check`; each adds its verdict to the report.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "eval/check_options.h"
#include "eval/check_prompts.h"
#include "eval/check_report.h"
#include "eval/text_loss.h"

namespace nibble {

// What is wrong with the NVFP4 scales of a file: NaN, negative, or far above the others of the
// same tensor. A file with NaN scales cannot be loaded, so this comes before loading.
std::vector<std::string> find_bad_scales(const TensorSource& source);

// The context an engine needs for one prompt and its reply, unless --context says more.
EngineOptions check_engine_options(const CheckOptions& options, const Runtime& runtime,
                                   int64_t needed);

void check_finite(const CheckOptions& options, const Runtime& runtime,
                  const std::vector<CheckPrompt>& prompts, CheckReport& report);
// `replicas`, here and below: the model on one device or several, which share the work; see
// runtime/replicas.h. The first is the model to ask everything else of.
using Replicas = std::span<const Runtime>;
void check_replies(const CheckOptions& options, Replicas replicas,
                   const std::vector<CheckPrompt>& prompts, CheckReport& report);
void check_kv(const CheckOptions& options, const Runtime& runtime,
              const std::vector<CheckPrompt>& prompts, CheckReport& report);
void check_paths(const CheckOptions& options, const Runtime& runtime,
                 const std::vector<CheckPrompt>& prompts, CheckReport& report);
void check_needle(const CheckOptions& options, const Runtime& runtime, CheckReport& report);
// How texts and choices go through a model.
std::vector<TextReader> text_readers(const CheckOptions& options, Replicas replicas);
// `base`: the model of --against on the same devices, or none.
void check_text(const CheckOptions& options, Replicas replicas, Replicas base, CheckReport& report);
void check_choices(const CheckOptions& options, Replicas replicas, Replicas base,
                   CheckReport& report);
void check_probes(const CheckOptions& options, Replicas replicas, CheckReport& report);

}  // namespace nibble
