// SPDX-License-Identifier: MIT
#include "comm/process_ranks.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include "comm/mpi.h"
#include "comm/nccl.h"
#include "comm/wait_limit.h"
#include "core/error.h"

namespace nibble {
namespace {

// Nobody waits for a process that has joined no others.
std::atomic<bool> all_done = true;

int number_of(const char* variable) {
  const char* const set = std::getenv(variable);
  if (!set) return 0;
  const std::string_view text(set);
  int n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  return error == std::errc() && end == text.data() + text.size() ? n : 0;
}

}  // namespace

int launched_ranks() {
  // Open MPI's mpirun; PMI 1 and 2 (srun --mpi=pmi2, MPICH); PMIx, which does not say how many.
  if (const int n = number_of("OMPI_COMM_WORLD_SIZE"); n > 0) return n;
  if (const int n = number_of("PMI_SIZE"); n > 0) return n;
  if (std::getenv("PMIX_RANK")) return std::max(1, number_of("SLURM_STEP_NUM_TASKS"));
  return 1;
}

std::unique_ptr<Comm> join_ranks() {
  const int ranks = launched_ranks();
  if (ranks <= 1) return make_alone();
  if (mpi_library().empty()) {
    throw_usage(
        "started as one of {} ranks, but this nibble was built without MPI, so each would train "
        "alone: build it with -DNIBBLE_MPI=ON (package libopenmpi-dev), or start it without mpirun",
        ranks);
  }
  const double limit = rank_limit();
  all_done = false;
  return make_mpi_comm(limit);
}

void ranks_are_done(bool done) { all_done = done; }

void leave_ranks(int exit_code) { leave_mpi(all_done || exit_code == 0, exit_code); }

std::string ranks_version_text() {
  const auto line = [](const char* what, const std::string& version) {
    return fmt::format("{:<10}{}\n", what, version.empty() ? "not built in" : version);
  };
  return line("mpi", mpi_library()) + line("nccl", nccl_library());
}

}  // namespace nibble
