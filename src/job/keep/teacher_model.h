// SPDX-License-Identifier: MIT
// The model that kept rows are compared with, and that writes what is missing of them.
#pragma once
#include <memory>
#include <optional>

#include "job/keep/keep_choices.h"
#include "job/train_inputs.h"
#include "model/load.h"
#include "train/settings.h"

namespace nibble {

// A teacher in a file of its own: opened, nothing but headers read.
struct TeacherFile {
  ModelPaths paths;
  Config config;
  std::unique_ptr<TensorSource> source;
  LoadOptions load;  // weights as the file has them

  KeepSettings::Teacher shape() const;
};
// None without --teacher. Throws UsageError where its vocabulary is not the model's; `tokenizer` is
// the model's, or null.
std::optional<TeacherFile> open_teacher(const KeepChoices& keep, const Config& model,
                                        const Tokenizer* tokenizer, DType compute);

// Whichever it is, as something that can be loaded to write text.
struct TeacherWeights {
  const Config& config;
  const TensorSource& source;
  LoadOptions load;
};
TeacherWeights teacher_weights(const std::optional<TeacherFile>& file, const TrainInputs& inputs,
                               const TrainSettings& settings);

}  // namespace nibble
