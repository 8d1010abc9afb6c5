// SPDX-License-Identifier: MIT
#include "serve/page/lesson_commands.h"

#include <fmt/format.h>

#include <algorithm>

namespace nibble {
namespace {

using Words = std::vector<std::string>;

void add(Words& words, std::initializer_list<std::string> more) { words.insert(words.end(), more); }

void add_path(Words& w, const char* flag, const std::filesystem::path& path) {
  if (!path.empty()) add(w, {flag, path.string()});
}

void add_model(Words& w, const LessonBase& b) {
  add_path(w, "--model", b.model.model);
  add_path(w, "--weight", b.model.weight);
  add_path(w, "--model-dir", b.model.model_dir);
  add_path(w, "--config", b.model.config);
  add_path(w, "--tokenizer", b.model.tokenizer);
}

void add_device(Words& w, const LessonBase& b) {
  add(w, {"--device", b.device, "--threads", std::to_string(b.threads)});
}

void add_recipe(Words& w, const LessonBase& b) { add(w, {"--recipe", b.dense ? "bf16" : "nvfp4"}); }

void add_batch(Words& w, const Lesson& l, int64_t window) {
  add(w, {"--batch-size", std::to_string(l.batch_size), "--seq-len", std::to_string(window)});
}

std::string own_text(const Lesson& l) { return fmt::format("self:{}", l.own_tokens); }

}  // namespace

Words train_words(const Lesson& l, const LessonBase& b, const LessonPlace& p) {
  Words w = {"train"};
  add_model(w, b);
  add_device(w, b);
  add_recipe(w, b);
  add_batch(w, l, p.window);
  if (!b.chat_template.empty()) add(w, {"--template", b.chat_template});
  add(w, {"--train-data", (p.folder / "rows.jsonl").string()});
  if (l.keep == LessonKeep::prompts) add(w, {"--keep", (p.folder / "keep.jsonl").string()});
  if (l.keep == LessonKeep::own_text) add(w, {"--keep", own_text(l)});
  // A short rise: the first steps of AdamW are as large as all others whatever the gradient.
  add(w, {"--steps", std::to_string(l.steps), "--lr", fmt::format("{}", l.lr), "--lr-schedule",
          "cosine", "--warmup-steps", std::to_string(std::clamp<int64_t>(l.steps / 20, 1, 50))});
  std::error_code ec;
  if (std::filesystem::exists(p.folder / "probes.json", ec)) {
    add(w, {"--probes", (p.folder / "probes.json").string(), "--probe-every",
            std::to_string(std::max<int64_t>(1, l.steps / kLessonGates)), "--probe-replies", "40"});
  }
  add(w, {"--runs-dir", p.runs.string(), "--run-name", p.run, "--output", p.output.string()});
  if (!p.checkpoints.empty()) add(w, {"--resume", "--checkpoint-dir", p.checkpoints.string()});
  return w;
}

Words plan_words(const Lesson& l, const LessonBase& b, int64_t window) {
  Words w = {"plan", "--json"};
  add_model(w, b);
  add_device(w, b);
  add_recipe(w, b);
  add_batch(w, l, window);
  // A plan reads no source: one of any kind has the same shape.
  if (l.keep != LessonKeep::nothing) add(w, {"--keep", own_text(l)});
  return w;
}

Words check_words(const std::filesystem::path& model, const LessonBase& b,
                  const std::filesystem::path& text, const std::filesystem::path& json) {
  Words w = {"check", "--model", model.string(), "--against", b.weights.string()};
  add_device(w, b);
  add_recipe(w,
             b);  // as it was trained: a base of dense layers would differ by their rounding, too
  // Inputs of 8 bits differ between any two models; this is about the weights alone.
  add(w, {"--activations", "bf16", "--text", text.string(), "--text-window", "128", "--json",
          json.string(), "--force"});
  return w;
}

}  // namespace nibble
