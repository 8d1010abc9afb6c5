// SPDX-License-Identifier: MIT
// Ranks that MPI started and joins, in the host's memory. Sums are made here, in the order of
// ranks: MPI only carries bytes.
#pragma once
#include <memory>
#include <string>

#include "comm/comm.h"

namespace nibble {

// The library this was built with: "Open MPI 4.1.4"; empty: none.
std::string mpi_library();
// Joins the other ranks, once in a process. Waits at most so long for one of them, from then on.
std::unique_ptr<Comm> make_mpi_comm(double limit_seconds);
// At the end of the process. In order: all ranks come here. Otherwise all of them are ended, with
// this exit code. Nothing where no rank was joined.
void leave_mpi(bool in_order, int exit_code);

}  // namespace nibble
