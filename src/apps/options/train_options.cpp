// SPDX-License-Identifier: MIT
#include "apps/options/train_options.h"
#include "apps/options/template_options.h"

#include <utility>
#include <vector>

#include "apps/options/device_option.h"
#include "apps/options/run_folder_option.h"
#include "apps/options/runtime_options.h"

namespace nibble {
namespace {

const std::vector<std::pair<std::string, DType>> kStorageNames = {{"bf16", DType::bf16},
                                                                  {"fp32", DType::f32},
                                                                  {"bfloat16", DType::bf16},
                                                                  {"float32", DType::f32}};

}  // namespace

void visit_fields(TrainChoices& o, Fields& f) {
  f.section("Arithmetic");
  add_device(f, o.device, o.threads);
  add_compute_type(f, o.compute, "auto is fp32 on a CPU, bf16 on a GPU; fp16 scales the loss");
  f.add_choice(o.loss,
               {.flag = "--loss",
                .help = "ce scores the response; scalar is for debugging",
                .aliases = {"--loss-mode"}},
               {{"ce", LossKind::ce},
                {"scalar", LossKind::scalar},
                {"cross-entropy", LossKind::ce},
                {"token-ce", LossKind::ce},
                {"l1", LossKind::scalar},
                {"scalar-l1", LossKind::scalar}});
  f.add_choice(o.recipe,
               {.flag = "--recipe",
                .help = "What the linear layers compute with: NVFP4, or the master itself (bf16)"},
               {{"nvfp4", Recipe::nvfp4}, {"bf16", Recipe::bf16}});
  f.add_choice<std::optional<Recipe>>(
      o.head_recipe, {.flag = "--head-recipe", .help = "The head alone; default: like --recipe"},
      {{"nvfp4", Recipe::nvfp4}, {"bf16", Recipe::bf16}});
  add_scale_rule(f, o.rule, "How changed blocks are quantised");
  f.section("Optimizer");
  f.add(o.lr, {.flag = "--lr",
               .help = "Learning rate, the peak of the schedule",
               .least = 0,
               .common = true});
  f.add_choice(o.schedule, {.flag = "--lr-schedule", .help = "How the rate goes after the warm-up"},
               {{"constant", ScheduleShape::constant},
                {"linear", ScheduleShape::linear},
                {"cosine", ScheduleShape::cosine}});
  f.add(o.warmup, {.flag = "--warmup-steps", .help = "Steps of linear rise", .least = 0});
  f.add(o.final_lr_share, {.flag = "--final-lr-share",
                           .help = "Share of --lr left at the last step (linear, cosine)",
                           .least = 0,
                           .most = 1});
  f.add(o.optimizer.beta1,
        {.flag = "--beta1", .help = "AdamW's first decay", .least = 0, .most = 1});
  f.add(o.optimizer.beta2,
        {.flag = "--beta2", .help = "AdamW's second decay", .least = 0, .most = 1});
  f.add(o.optimizer.eps, {.flag = "--eps", .help = "AdamW's epsilon", .above = 0});
  f.add(o.optimizer.weight_decay,
        {.flag = "--weight-decay", .help = "Decoupled decay of matrices", .least = 0});
  f.add(o.optimizer.decay_all,
        {.flag = "--decay-all", .help = "Decay norms and biases, too", .needs = "--weight-decay"});
  f.add(o.optimizer.grad_clip,
        {.flag = "--grad-clip", .help = "Largest global norm of the gradient; 0: off", .least = 0});
  f.add_choice(o.optimizer.moments,
               {.flag = "--optimizer-state-mode",
                .help = "How AdamW's moments are stored; int8-linear shows how it fails"},
               {{"int8", MomentFormat::int8},
                {"fp32", MomentFormat::f32},
                {"bf16", MomentFormat::bf16},
                {"nvfp4", MomentFormat::nvfp4},
                {"int8-linear", MomentFormat::int8_linear},
                {"8bit", MomentFormat::int8},
                {"8-bit", MomentFormat::int8},
                {"fp4", MomentFormat::nvfp4}});
  f.add_choice(o.optimizer.from,
               {.flag = "--update-from",
                .help = "quantised updates the 4-bit copy, which learns nothing: an experiment"},
               {{"master", UpdateFrom::master}, {"quantised", UpdateFrom::quantised}});
  f.add_choice(o.master, {.flag = "--master-dtype", .help = "Type of the trained weights"},
               kStorageNames);
  f.add_choice(o.optimizer.rounding,
               {.flag = "--master-rounding",
                .help = "How a bf16 master is rounded; nearest loses small updates: an experiment"},
               {{"stochastic", MasterRounding::stochastic}, {"nearest", MasterRounding::nearest}});
  f.add_choice(o.grad, {.flag = "--grad-dtype", .help = "Type of the gradients"}, kStorageNames);
  f.add(o.lr_scale,
        {.flag = "--lr-scale",
         .help = "Rates of parts, e.g. lm_head=5,embed_tokens=0.5,layers.0-7=0.1; 0 freezes",
         .value = "LIST"});
  f.add(o.train_last_layers,
        {.flag = "--train-last-layers",
         .help = "Train only the projections of the last N layers; 0, less, or as many as there "
                 "are: everything",
         .value = "N"});
  f.add(o.untie, {.flag = "--untie", .help = "Train the head of a tied model as its own matrix"});
  f.add(o.optimizer.chunk_rows, {.flag = "--step-chunk-rows",
                                 .help = "Rows updated at a time; 0: all. Never changes a result",
                                 .aliases = {"--optimizer-step-chunk-rows"},
                                 .least = 0});
  f.add(o.seed, {.flag = "--seed", .help = "Of sampling and of stochastic rounding"});
  f.section("Memory");
  f.add_choice(o.memory,
               {.flag = "--memory-mode",
                .help = "Gradients kept (A), released layer by layer (B), released with NVFP4 "
                        "weights made on demand (C), released with masters and moments in the "
                        "host's memory (D); under mpirun shared out over ranks (E), or NVFP4 "
                        "weights, too (F); auto takes the fastest that fits"},
               {{"auto", MemoryChoice::automatic},
                {"resident", MemoryChoice::resident},
                {"release", MemoryChoice::release},
                {"remake", MemoryChoice::remake},
                {"host", MemoryChoice::host},
                {"sharded", MemoryChoice::sharded},
                {"gathered", MemoryChoice::gathered},
                {"A", MemoryChoice::resident},
                {"B", MemoryChoice::release},
                {"C", MemoryChoice::remake},
                {"D", MemoryChoice::host},
                {"E", MemoryChoice::sharded},
                {"F", MemoryChoice::gathered}});
  f.add_choice(o.recompute,
               {.flag = "--recompute",
                .help = "Activations computed again in the backward instead of kept: those of the "
                        "feed-forward, or of the whole block; auto: if need be"},
               {{"auto", RecomputeChoice::automatic},
                {"none", RecomputeChoice::none},
                {"mlp", RecomputeChoice::mlp},
                {"block", RecomputeChoice::block},
                {"off", RecomputeChoice::none},
                {"on", RecomputeChoice::block},
                {"false", RecomputeChoice::none},
                {"true", RecomputeChoice::block}});
  f.add(o.logits_mib,
        {.flag = "--logits-mib",
         .help = "Memory for logits; the vocabulary is cut into pieces that fit. Default: "
                 "96, and enough for 8192 entries of every token's; with all of it in "
                 "one piece logits are computed once instead of twice",
         .value = "MIB",
         .least = 1,
         .most = 1 << 20});
}

void visit_fields(BatchSettings& o, Fields& f) {
  f.add(o.seq_len, {.flag = "--seq-len",
                    .help = "Window: tokens of a sample that are fed at most",
                    .least = 2,
                    .most = 1 << 24,
                    .common = true});
  f.add(o.batch_size, {.flag = "--batch-size",
                       .help = "Samples that go through the model together, packed without padding",
                       .least = 1,
                       .most = 1 << 20,
                       .common = true});
  f.add(o.accumulate, {.flag = "--accumulate",
                       .help = "Micro-batches whose gradients are summed for one update",
                       .aliases = {"--grad-accum"},
                       .least = 1,
                       .most = 1 << 20});
}

void visit_fields(KeepChoices& o, Fields& f) {
  f.section("Rows that are kept");
  f.add(o.sources,
        {.flag = "--keep",
         .help = "Rows on which the model stays what it is, by KL(teacher || model) at every "
                 "token: text (.txt, .jsonl), conversations (.tsv, .jsonl), prompts that the "
                 "teacher answers first (.jsonl, or probes .json), or self:TOKENS, text that it "
                 "writes itself; several sources take turns",
         .value = "FILE|self:TOKENS"});
  f.add(o.teacher, {.flag = "--teacher",
                    .help = "A model of the same vocabulary to compare kept rows with, dense or "
                            "NVFP4; default: the model itself, as it is before the first step",
                    .value = "MODEL"});
  f.add(o.weight, {.flag = "--keep-weight",
                   .help = "Of the kept tokens' mean divergence beside the taught tokens' mean "
                           "cross entropy",
                   .above = 0});
  f.add(o.share, {.flag = "--keep-share",
                  .help = "Share of the samples of a batch that are kept ones; default: half, or "
                          "all without --train-data",
                  .value = "SHARE",
                  .most = 1,
                  .above = 0});
}

void visit_fields(DataSettings& o, DataUse use, Fields& f) {
  f.add(o.train_data,
        {.flag = "--train-data",
         .help = use == DataUse::fine_tune
                     ? "Training data: .jsonl, .json, .csv (messages, ShareGPT, Alpaca, prompt and "
                       "completion) or .tsv (prompt<TAB>target), also as .gz, or a folder of such "
                       "files; without it nothing is taught, and --keep says what the model is "
                       "trained on"
                     : "Training text: .txt (documents apart by blank lines), .jsonl, .json or "
                       ".csv, also as .gz, or a folder of such files",
         .value = "FILE",
         .required = use == DataUse::pretrain,
         .common = true});
  f.add(o.eval_data, {.flag = "--eval-data",
                      .help = "Held-out data whose loss is reported",
                      .value = "FILE",
                      .common = true});
  std::vector<std::pair<std::string, DataFormat>> formats = {{"auto", DataFormat::automatic},
                                                             {"jsonl", DataFormat::jsonl},
                                                             {"json", DataFormat::json},
                                                             {"csv", DataFormat::csv}};
  if (use == DataUse::fine_tune) {
    formats.push_back({"tsv", DataFormat::tsv});
  } else {
    formats.push_back({"text", DataFormat::text});
    formats.push_back({"tsv", DataFormat::tsv});
  }
  f.add_choice(o.format, {.flag = "--data-format", .help = "auto goes by the file's name"},
               formats);
  f.add_choice(o.sample_mode,
               {.flag = "--sample-mode",
                .help = "random: each sample once per epoch, shuffled; sequential: as in the file"},
               {{"random", SampleMode::random}, {"sequential", SampleMode::sequential}});
  f.add(o.skip_bad_lines, {.flag = "--skip-bad-lines",
                           .help = "Count lines that cannot be used instead of stopping"});
  f.add(o.strict_data, {.flag = "--strict-data", .help = kStrictDataHelp});
  if (use == DataUse::pretrain) {
    f.add(o.whole_file,
          {.flag = "--one-document", .help = "A .txt is one document, blank lines and all"});
    return;
  }
  f.add(o.truncate, {.flag = "--truncate",
                     .help = "Cut responses that alone do not fit the window instead of stopping"});
  f.add(o.end_token, {.flag = "--end-token",
                      .help = "Teach the end token that closes a response; false leaves it out"});
  f.add(o.chat_template, {.flag = "--template", .help = kTemplateHelp, .value = "NAME|FILE"});
  f.add(o.parse_content,
        {.flag = "--parse-content",
         .help = "Strings like <|im_end|> in the data become control tokens; by default they are "
                 "text"});
}

}  // namespace nibble
