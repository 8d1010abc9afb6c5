// SPDX-License-Identifier: MIT
// Whether all ranks were started for the same: version, configuration, files.
#pragma once
#include <map>
#include <string>

#include "comm/comm.h"
#include "job/train_job.h"
#include "train/checkpoint.h"

namespace nibble {

using StartFacts = std::map<std::string, std::string>;

// What must be the same: the program, the lines of the configuration, the bytes of config and
// tokenizer, headers and beginnings of the weights, and what the run's checkpoints must have alike.
StartFacts start_facts(const TrainJob& job, const TrainInputs& inputs, const RunIdentity& identity);

// UsageError on all ranks when one differs from rank 0: there with every difference, rank and
// machine; without words elsewhere.
void check_same_start(Comm& comm, const StartFacts& facts);

}  // namespace nibble
