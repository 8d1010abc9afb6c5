// SPDX-License-Identifier: MIT
// The flags of training commands.
#pragma once
#include "apps/options/options.h"
#include "job/train_job.h"

namespace nibble {

inline constexpr char kStrictDataHelp[] =
    "Refuse keys and columns that say nothing to a training; by default they are counted and left "
    "out";

// What every training command has (train_options.cpp).
void visit_fields(TrainChoices& o, Fields& f);
void visit_fields(BatchSettings& o, Fields& f);
void visit_fields(KeepChoices& o, Fields& f);
void visit_fields(DataSettings& o, DataUse use, Fields& f);

// Parts of a job (job_options.cpp), and all of them but the model, which each command names in its
// own way.
void visit_fields(RunSettings& o, Fields& f);
void visit_fields(GateSettings& o, Fields& f);
void visit_fields(SelfTestSettings& o, Fields& f);
void visit_fields(TrainJob& o, Fields& f);

}  // namespace nibble
