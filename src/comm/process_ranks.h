// SPDX-License-Identifier: MIT
// The ranks this process was started among: by mpirun, srun, or as what it is, alone.
#pragma once
#include <memory>
#include <string>

#include "comm/comm.h"

namespace nibble {

// How many ranks the environment says there are: what mpirun and srun set. 1 where nothing is said.
int launched_ranks();
// Joins them. Throws UsageError when there are several and nibble was built without MPI: each would
// believe that it is alone.
std::unique_ptr<Comm> join_ranks();

// All ranks know that this one ends, and end, too: false while one might be waiting for it.
void ranks_are_done(bool done);
// At the end of the process: ends the others with this exit code where they would wait.
void leave_ranks(int exit_code);

// "mpi       Open MPI 4.1.4", "nccl      not built in": lines of nibble --version.
std::string ranks_version_text();

}  // namespace nibble
