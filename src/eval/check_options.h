// SPDX-License-Identifier: MIT
// What is to be checked about a model, and how.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "eval/needle.h"
#include "eval/probe.h"
#include "generate/sampler.h"
#include "runtime/runtime.h"

namespace nibble {

enum class ProbeShow { failures, all, none };

struct CheckProbes {
  std::filesystem::path file, report, baseline, data;
  WhichRules rules = WhichRules::target;
  int64_t most = 0;  // of each group; 0: all
  std::string min_score;
  ProbeShow show = ProbeShow::failures;
};

struct CheckOptions {
  RuntimeOptions runtime;
  CacheOptions cache;
  bool finite = false, kv = false, paths = false, needle = false, replies = false;
  bool force = false;  // replaces reports that exist
  std::string prompt = "你是誰";
  std::optional<std::vector<int32_t>> input_ids;
  std::optional<int64_t> max_tokens;
  SampleOptions sample;  // of --replies and --kv; its seed also draws random ids
  int64_t iterations = 3;
  std::vector<int32_t> kv_chunks = {3, 7};
  double max_logit_diff = 0;
  std::optional<double> max_rel, min_cosine;
  NeedleOptions needle_options;
  CacheUse needle_mode = CacheUse::persistent;
  std::filesystem::path haystack, json, html;
  CheckProbes probes;
  std::vector<std::string> texts;  // files whose loss is measured
  int64_t text_window = 512, text_windows = 0;
  std::vector<std::string> choices;  // files of questions
  int64_t choice_max = 0;            // of each file; 0: all
  // Another model, usually the one before the fine-tune, to compare texts and choices with, and
  // what it may have cost.
  std::filesystem::path against;
  int64_t moved = 10;  // tokens shown of each text
  std::optional<double> max_divergence, min_agreement, max_loss_rise, max_drop;
};

}  // namespace nibble
