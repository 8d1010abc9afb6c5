// SPDX-License-Identifier: MIT
#include "job/keep/teacher_model.h"

#include "convert/checkpoint_model.h"
#include "data/lines.h"
#include "runtime/model_texts.h"

namespace nibble {
namespace {

// Two files of one model may have tokens added that no text makes; what both have must be equal.
void check_tokens(const Tokenizer& own, const Tokenizer& teacher, const std::string& name) {
  const int32_t n = std::min(own.vocab_size(), teacher.vocab_size());
  for (int32_t id = 0; id < n; ++id) {
    if (own.token_bytes(id) == teacher.token_bytes(id)) continue;
    throw_usage(
        "--teacher {}: its token {} is '{}', the model's is '{}'; a teacher's words can only be "
        "compared token by token, so it needs the model's own tokenizer",
        name, id, excerpt(teacher.token_bytes(id)), excerpt(own.token_bytes(id)));
  }
}

}  // namespace

KeepSettings::Teacher TeacherFile::shape() const {
  return {config, weight_layout(config, *source, load)};
}

std::optional<TeacherFile> open_teacher(const KeepChoices& keep, const Config& model,
                                        const Tokenizer* tokenizer, DType compute) {
  if (keep.teacher.empty()) return std::nullopt;
  ModelOptions named;
  named.model = keep.teacher;
  TeacherFile t;
  t.paths = resolve_model(named, TokenizerNeed::optional);
  t.config = load_config(t.paths.config);
  const std::string name = keep.teacher.string();
  if (t.config.V != model.V) {
    throw_usage(
        "--teacher {} has a vocabulary of {} tokens, the model one of {}: a teacher's words can "
        "only be compared token by token, so both need the same vocabulary",
        name, t.config.V, model.V);
  }
  if (tokenizer && !t.paths.tokenizer.empty()) {
    check_tokens(*tokenizer, load_tokenizer(t.paths.tokenizer), name);
  }
  t.source = open_weights(t.paths.weights);
  t.load.expanded = compute;
  return t;
}

TeacherWeights teacher_weights(const std::optional<TeacherFile>& file, const TrainInputs& in,
                               const TrainSettings& s) {
  if (file) return {file->config, *file->source, file->load};
  LoadOptions load;
  load.recipe = s.recipe;
  load.head_recipe = s.head();
  load.scale_rule = s.rule;
  load.expanded = s.compute;
  return {in.config, *in.source, load};
}

}  // namespace nibble
