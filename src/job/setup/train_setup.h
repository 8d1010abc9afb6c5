// SPDX-License-Identifier: MIT
// What a job makes of its files and settings before a weight is read: the same on every rank.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "job/job_data.h"
#include "job/keep/teacher_model.h"

namespace nibble {

struct TrainSetup {
  std::unique_ptr<Backend> backend;
  std::optional<TeacherFile> teacher;
  Config as_trained;
  TrainSettings settings;
};

// What is kept, written by the teacher first where it has to be.
struct KeptInputs {
  std::vector<Dataset> samples;
  std::vector<std::filesystem::path> files;  // as they are read
};
KeptInputs load_all_kept(const TrainJob& job, const TrainInputs& inputs,
                         const std::optional<TeacherFile>& teacher, Backend& backend,
                         const std::function<std::filesystem::path()>& directory);

// Everything that can be known before a weight is read, memory included.
TrainSettings settle(const TrainJob& job, const TrainInputs& inputs, const Config& as_trained,
                     const Backend& backend, const JobSamples& samples, const PackBounds& bounds,
                     const std::optional<TeacherFile>& teacher, const Gates& gates);

}  // namespace nibble
