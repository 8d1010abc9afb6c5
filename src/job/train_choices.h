// SPDX-License-Identifier: MIT
// How a training run is asked for, and the settings that come of it.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "runtime/runtime.h"
#include "train/dataset.h"
#include "train/packing.h"
#include "train/settings.h"

namespace nibble {

enum class MemoryChoice { automatic, resident, release, remake, host, sharded, gathered };
enum class RecomputeChoice { automatic, none, mlp, block };

// How it computes and learns, with what is left to the program (`automatic`).
struct TrainChoices {
  Device device = Device::automatic;
  int32_t threads = 0;
  FloatChoice compute = FloatChoice::automatic;
  LossKind loss = LossKind::ce;
  Recipe recipe = Recipe::nvfp4;
  std::optional<Recipe> head_recipe;
  ScaleRule rule = ScaleRule::four_over_six;

  double lr = 1e-5;
  ScheduleShape schedule = ScheduleShape::constant;
  int64_t warmup = 0;
  double final_lr_share = 0;
  OptimizerSettings optimizer;
  DType master = DType::bf16, grad = DType::bf16;
  std::string lr_scale;
  int64_t train_last_layers = 0;
  bool untie = false;
  uint64_t seed = 20260226;

  MemoryChoice memory = MemoryChoice::automatic;
  RecomputeChoice recompute = RecomputeChoice::automatic;
  std::optional<int64_t> logits_mib;

  // Without what depends on data and memory: steps, capacities, memory mode, recompute.
  TrainSettings settings() const;
  DType compute_type() const;
};

// Which samples, and how many at a time.
struct BatchSettings {
  int64_t seq_len = 512;
  int64_t batch_size = 1;
  int64_t accumulate = 1;
};

struct DataSettings {
  std::filesystem::path train_data, eval_data;
  DataFormat format = DataFormat::automatic;
  SampleMode sample_mode = SampleMode::random;
  bool skip_bad_lines = false, strict_data = false, truncate = false, end_token = true,
       whole_file = false;
  std::string chat_template;  // a name or a file; empty: the model's own
  bool parse_content = false;

  DatasetOptions dataset(DataUse use, int64_t seq_len, const ChatTemplate& chat) const;
};

// Throws UsageError for rows the model has no positions for.
void check_window(const Config& config, int64_t rows);

}  // namespace nibble
