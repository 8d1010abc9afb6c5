// SPDX-License-Identifier: MIT
#include "apps/options/other_names.h"

#include <algorithm>
#include <string>

namespace nibble {
namespace {

constexpr std::string_view kAlways = "is always so here";
constexpr OtherName kNames[] = {
    {"--model-name-or-path", "--model", ""},
    {"--model-name", "--model", ""},
    {"--model-path", "--model", ""},
    {"--base-model", "--model", ""},
    {"--pretrained-model-name-or-path", "--model", ""},
    {"--tokenizer-name", "--tokenizer", ""},
    {"--output-dir", "--output", "the trained model; checkpoints go to --checkpoint-dir"},
    {"--overwrite-output-dir", "--force", ""},
    {"--dataset", "--train-data", ""},
    {"--dataset-name", "--train-data", "a file; datasets are not downloaded"},
    {"--train-file", "--train-data", ""},
    {"--data", "--train-data", ""},
    {"--data-path", "--train-data", ""},
    {"--validation-file", "--eval-data", ""},
    {"--eval-file", "--eval-data", ""},
    {"--test-file", "--eval-data", ""},
    {"--learning-rate", "--lr", ""},
    {"--lr-scheduler-type", "--lr-schedule", "constant, linear or cosine"},
    {"--lr-scheduler", "--lr-schedule", "constant, linear or cosine"},
    {"--warmup-ratio", "--warmup-steps", "a number of steps, not a share"},
    {"--num-warmup-steps", "--warmup-steps", ""},
    {"--num-train-epochs", "--epochs", ""},
    {"--num-epochs", "--epochs", ""},
    {"--max-steps", "--steps", ""},
    {"--max-train-steps", "--steps", ""},
    {"--iters", "--steps", ""},
    {"--max-seq-length", "--seq-len", ""},
    {"--max-seq-len", "--seq-len", ""},
    {"--max-length", "--seq-len",
     "in generate and chat: --max-tokens for the reply, --context for "
     "all"},
    {"--block-size", "--seq-len", ""},
    {"--cutoff-len", "--seq-len", ""},
    {"--model-max-length", "--seq-len", ""},
    {"--per-device-train-batch-size", "--batch-size", ""},
    {"--train-batch-size", "--batch-size", ""},
    {"--micro-batch-size", "--batch-size", ""},
    {"--gradient-accumulation-steps", "--accumulate", ""},
    {"--gradient-checkpointing", "--recompute", "mlp or block; auto decides by the memory"},
    {"--max-grad-norm", "--grad-clip", ""},
    {"--adam-beta1", "--beta1", ""},
    {"--adam-beta2", "--beta2", ""},
    {"--adam-epsilon", "--eps", ""},
    {"--optim", "--optimizer-state-mode", "it is AdamW; this says how its moments are stored"},
    {"--logging-steps", "--log-every", ""},
    {"--eval-steps", "--eval-every", ""},
    {"--save-steps", "--save-every-steps", ""},
    {"--save-total-limit", "--keep-checkpoints", ""},
    {"--resume-from-checkpoint", "--resume", "with --checkpoint-dir DIR"},
    {"--run-id", "--run-name", ""},
    {"--logging-dir", "--runs-dir", ""},
    {"--report-to", "", "every run is recorded in --runs-dir; nibble runs shows them"},
    {"--bf16", "--compute-dtype", "--compute-dtype bf16"},
    {"--fp16", "--compute-dtype", "--compute-dtype fp16"},
    {"--torch-dtype", "--compute-dtype", ""},
    {"--load-in-4bit", "--recipe", "--recipe nvfp4, which is the default in training"},
    {"--lora-r", "",
     "there is no LoRA: every parameter is trained; --train-last-layers or "
     "--lr-scale train fewer"},
    {"--lora-rank", "",
     "there is no LoRA: every parameter is trained; --train-last-layers or "
     "--lr-scale train fewer"},
    {"--use-peft", "",
     "there is no LoRA: every parameter is trained; --train-last-layers or "
     "--lr-scale train fewer"},
    {"--do-train", "", kAlways},
    {"--packing", "", kAlways},
    {"--trust-remote-code", "", "no code of a model is ever run"},
    {"--max-new-tokens", "--max-tokens", ""},
    {"--n-predict", "--max-tokens", ""},
    {"--predict", "--max-tokens", ""},
    {"--num-predict", "--max-tokens", ""},
    {"--ctx-size", "--context", ""},
    {"--n-ctx", "--context", ""},
    {"--num-ctx", "--context", ""},
    {"--context-length", "--context", ""},
    {"-c", "--context", ""},
    {"-t", "--threads", ""},
    {"--n-threads", "--threads", ""},
    {"--repeat-penalty", "--repetition-penalty", ""},
    {"--do-sample", "--temp", "above 0 draws, 0 is greedy"},
    {"--system-prompt", "--system", ""},
    {"-sys", "--system", ""},
    {"--chat-template", "--template", ""},
    {"--file", "--prompt-file", ""},
    {"-f", "--prompt-file", ""},
    {"--n-gpu-layers", "--device", "cuda puts all of the model on the GPU"},
    {"-ngl", "--device", "cuda puts all of the model on the GPU"},
    {"--stop-sequence", "--stop", ""},
    {"--random-seed", "--seed", ""},
};

}  // namespace

std::span<const OtherName> other_names() { return kNames; }

const OtherName* find_other_name(std::string_view flag) {
  std::string plain(flag);
  std::ranges::replace(plain, '_', '-');
  for (const OtherName& n : kNames) {
    if (n.flag == plain) return &n;
  }
  return nullptr;
}

}  // namespace nibble
