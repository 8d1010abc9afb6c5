// SPDX-License-Identifier: MIT
// A program as several ranks under mpirun, and why a test of it is skipped.
#pragma once
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "comm/mpi.h"

namespace nibble::test {

// Empty: mpirun and this build can do it.
inline std::string no_mpi_here() {
  if (mpi_library().empty()) return "built without MPI (-DNIBBLE_MPI=ON)";
  if (std::system("mpirun --version >/dev/null 2>&1") != 0) return "there is no mpirun";
  return {};
}
#define NIBBLE_NEEDS_MPI() \
  if (const std::string why = nibble::test::no_mpi_here(); !why.empty()) GTEST_SKIP() << why

struct MpiRun {
  int code = -1;
  std::string text;  // standard output and error
};

inline MpiRun shell_run(const std::string& line) {
  MpiRun run;
  FILE* const pipe = ::popen(line.c_str(), "r");
  char piece[4096];
  for (size_t n = 0; pipe && (n = std::fread(piece, 1, sizeof piece, pipe)) > 0;) {
    run.text.append(piece, n);
  }
  const int status = pipe ? ::pclose(pipe) : -1;
  run.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return run;
}

// `command` is a shell's. More ranks than cores share them.
inline MpiRun mpi_run(int ranks, const std::string& command, const std::string& environment = "") {
  return shell_run(environment +
                   " OMPI_MCA_rmaps_base_oversubscribe=1 timeout 280 mpirun --allow-run-as-root "
                   "--oversubscribe --bind-to none -n " +
                   std::to_string(ranks) + " " + command + " 2>&1 </dev/null");
}

}  // namespace nibble::test
