// SPDX-License-Identifier: MIT
// One rank of the tests under mpirun: checks every call, or fails to come on purpose.
//   rank_child check
//   rank_child hang RANK      that rank sleeps, the others wait for it
//   rank_child die RANK       that rank is killed
//   rank_child fail RANK      that rank ends with code 3
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <iostream>
#include <string>

#include "comm/comm_checks.h"
#include "comm/process_ranks.h"
#include "comm/work_queue.h"
#include "core/error.h"

using namespace nibble;

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  const int who = argc > 2 ? std::atoi(argv[2]) : -1;
  int code = 0;
  try {
    const auto comm = join_ranks();
    if (what == "check") {
      // Both ways at once.
      std::string problem, problem_beside;
      Comm& beside = comm->beside();
      {
        WorkQueue queue;
        queue.add([&] { problem_beside = test::check_comm(beside); });
        problem = test::check_comm(*comm);
      }
      problem += problem_beside;
      if (!problem.empty()) throw Error(ExitCode::check_failed, problem);
      comm->barrier();
      ranks_are_done(true);
      if (comm->leads()) {
        std::cout << "all is well on " << comm->size() << " ranks, " << comm->name() << "\n";
      }
    } else {
      comm->barrier();
      comm->at("the place it waits");
      if (comm->rank() == who) {
        if (what == "die") std::raise(SIGKILL);
        if (what == "fail") throw FormatError("a file of this rank");
        ::sleep(1000);
      }
      comm->barrier();
    }
  } catch (const Error& e) {
    std::cerr << "error: " << e.what() << std::endl;
    code = int(e.code());
  }
  leave_ranks(code);
  return code;
}
