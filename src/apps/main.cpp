// SPDX-License-Identifier: MIT
#include <cerrno>
#include <csignal>
#include <iostream>
#include <new>

#include "apps/cli.h"
#include "core/durable/last_words.h"
#include "core/durable/temporary.h"

namespace {

// Interrupted: take half-written files along, then end as the signal would have.
extern "C" void end_cleanly(int signal) {
  nibble::remove_temporary_files();
  nibble::write_last_words();
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

}  // namespace

int main(int argc, char** argv) try {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) std::signal(signal, end_cleanly);
  // A reader that goes away must not kill us between a temporary file and its removal: writes
  // fail instead, and the exit code is what the signal would have given.
  std::signal(SIGPIPE, SIG_IGN);
  std::ios::sync_with_stdio(false);
  const int code = nibble::run_cli({argv + 1, argv + argc}, std::cin, std::cout, std::cerr);
  errno = 0;
  std::cout.flush();
  if (!std::cout) {
    constexpr int kBrokenPipe = 128 + SIGPIPE, kFileError = 3;
    if (errno == EPIPE || errno == 0) return code != 0 ? code : kBrokenPipe;
    std::cerr << "nibble: error: cannot write to standard output" << std::endl;
    return code != 0 ? code : kFileError;
  }
  return code;
} catch (const std::bad_alloc&) {  // before there was anything that could say more
  constexpr int kNoMemory = 4;
  return kNoMemory;
}
