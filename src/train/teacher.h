// SPDX-License-Identifier: MIT
// What kept rows are compared with: the weights of another file, or those the run started from.
// Private to the files that make a run's memory.
#pragma once
#include "train/memory.h"

namespace nibble {

// From the teacher's arenas; no blocks where nothing is kept. The run's own start needs memory only
// for what is trained: `so_far` has the forward's weights, which the rest is.
Weights make_teacher(TrainArenas& arenas, const Backend& backend, const Config& config,
                     const ParamGroups& groups, const TrainSettings& settings,
                     const TrainTensors& so_far);
// Copies what the forward reads before the first step, so that both see the same bits. Weights that
// are made from the master on demand are made once.
void fill_own_teacher(Backend& backend, const TrainTensors& tensors, const ParamGroups& groups,
                      const TrainSettings& settings);

// The slots of its pass; those that only the pass needs are given back to the arena.
TeacherTensors make_teacher_tensors(Arena& arena, const Config& config,
                                    const TrainSettings& settings, const StepShape& shape,
                                    const Batch& batch);

}  // namespace nibble
