// SPDX-License-Identifier: MIT
// Where a trained model goes, and how it gets there: weights in the form of the input, its
// config.json and tokenizer beside them.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "job/train_inputs.h"
#include "runlog/run_recorder.h"
#include "runtime/model_origin.h"
#include "runtime/staged_output.h"
#include "train/export_weights.h"

namespace nibble {

struct Destination {
  std::filesystem::path path;
  Container container = Container::directory;
  Overwrite overwrite = Overwrite::refuse;
  std::filesystem::path directory;  // of the weights and their companions
  std::optional<FileLock> lock;     // no other run writes there
};

// Asked before the training: what may not be written then is known then. `also_read`: files of the
// run that are not the model's and may not be replaced either.
Destination check_destination(const std::filesystem::path& out, Overwrite overwrite,
                              const TrainInputs& inputs,
                              const std::vector<std::filesystem::path>& also_read);

// Whether the file will be of 4 bits where the run computed with the master itself: then its loss
// is another one, and rightly so.
bool file_is_coarser(const TensorSource& source, const TrainSettings& settings,
                     Container container);

// About as many bytes as export_model() will write.
uint64_t export_bytes(const TrainInputs& inputs, const TrainSettings& settings,
                      const Destination& destination);

// Writes weights and companions, all or nothing. `origin`: what the run knows of itself.
ExportSummary export_model(const TrainInputs& inputs, TrainState& state,
                           const Destination& destination, int32_t threads,
                           const ModelOrigin& origin);

// What a run says of the model it has made in `steps`; `name`, `parent`: of the models. Waits for
// the hashes of what it has read. Nothing that a resumed run whose record was lost could not say:
// it writes the same bytes.
ModelOrigin trained_origin(RunRecorder& recorder, std::string name, std::string parent,
                           int64_t steps);
// What a run's record says of it.
ModelOrigin origin_of_run(const RunRecord& run, std::string name, std::string parent);

}  // namespace nibble
