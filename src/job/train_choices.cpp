// SPDX-License-Identifier: MIT
#include "job/train_choices.h"

#include "train/param_groups.h"

namespace nibble {

DType TrainChoices::compute_type() const {
  return float_type(compute,
                    resolve_device(device).kind == Device::cuda ? DType::bf16 : DType::f32);
}

TrainSettings TrainChoices::settings() const {
  if (final_lr_share > 0 && schedule == ScheduleShape::constant) {
    throw_usage("--final-lr-share is where --lr-schedule linear or cosine ends; it is constant");
  }
  // A decay of 1 never takes anything in, and its bias correction divides by zero.
  if (optimizer.beta1 == 1 || optimizer.beta2 == 1) {
    throw_usage("--{} must be below 1", optimizer.beta1 == 1 ? "beta1" : "beta2");
  }
  if (optimizer.rounding == MasterRounding::nearest && master == DType::f32) {
    throw_usage("--master-rounding nearest is about a bf16 master; --master-dtype is fp32");
  }
  TrainSettings s;
  s.loss = loss;
  s.recipe = recipe;
  s.head_recipe = head_recipe;
  s.rule = rule;
  s.compute = compute_type();
  s.master = master;
  s.grad = grad;
  s.untie = untie;
  s.optimizer = optimizer;
  s.schedule = {schedule, lr, final_lr_share, warmup, 1};
  s.lr_scale = parse_lr_scales(lr_scale);
  s.train_last_layers = train_last_layers;
  s.seed = seed;
  if (logits_mib) s.logits_bytes = *logits_mib << 20;
  if (s.optimizer.from == UpdateFrom::quantised && recipe != Recipe::nvfp4) {
    throw_usage("--update-from quantised needs --recipe nvfp4: there is no 4-bit copy to update");
  }
  if (s.optimizer.from == UpdateFrom::quantised && memory == MemoryChoice::remake) {
    throw_usage(
        "--update-from quantised needs a 4-bit copy that stays; --memory-mode remake has "
        "none");
  }
  return s;
}

DatasetOptions DataSettings::dataset(DataUse use, int64_t seq_len, const ChatTemplate& chat) const {
  const auto settled = [&] {
    return format == DataFormat::automatic ? format_of(train_data, use) : format;
  };
  std::error_code ignored;
  const bool folder = std::filesystem::is_directory(train_data, ignored);
  if (whole_file && !folder && settled() != DataFormat::text) {
    throw_usage("--one-document is about plain text; {} has one document a line",
                train_data.string());
  }
  DatasetOptions d;
  d.format = format;
  d.use = use;
  d.seq_len = seq_len;
  d.style = chat;
  d.content = parse_content ? ContentTokens::parse : ContentTokens::plain;
  d.end_token = end_token ? EndToken::learn : EndToken::leave_out;
  d.long_response = truncate ? LongResponse::cut : LongResponse::refuse;
  d.extra = strict_data ? ExtraKeys::refuse : ExtraKeys::count;
  d.bad_lines = skip_bad_lines ? BadLines::skip : BadLines::refuse;
  d.documents = whole_file ? Documents::whole_file : Documents::paragraphs;
  return d;
}

void check_window(const Config& c, int64_t rows) {
  if (rows > c.max_positions) {
    throw_usage("samples of {} tokens, but the model knows positions up to {}: use --seq-len {}",
                rows, c.max_positions, c.max_positions);
  }
}

}  // namespace nibble
