// SPDX-License-Identifier: MIT
// In place of mpi_comm.cpp where nibble is built without MPI.
#include "comm/mpi.h"
#include "core/error.h"

namespace nibble {

std::string mpi_library() { return {}; }

std::unique_ptr<Comm> make_mpi_comm(double) {
  throw_usage("this nibble was built without MPI (-DNIBBLE_MPI=ON, package libopenmpi-dev)");
}

void leave_mpi(bool, int) {}

}  // namespace nibble
