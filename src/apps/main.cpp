// SPDX-License-Identifier: MIT
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <iostream>
#include <new>

#include "apps/cli.h"
#include "apps/terminal/output_buffer.h"
#include "apps/terminal/process_start.h"
#include "comm/process_ranks.h"
#include "core/durable/memory_reserve.h"

int main(int argc, char** argv) try {
  nibble::open_missing_streams();
  nibble::take_signals();
  nibble::keep_memory_reserve();
  std::ios::sync_with_stdio(false);
  nibble::OutputBuffer buffer(STDOUT_FILENO);
  std::ostream out(&buffer);
  const int code = nibble::run_cli({argv + 1, argv + argc}, std::cin, out, std::cerr);
  out.flush();
  nibble::leave_ranks(code);
  if (buffer.error() == 0) return code;
  // A reader that went away is not worth a message: the code is what its signal would have given.
  constexpr int kBrokenPipe = 128 + SIGPIPE, kFileError = 3;
  if (buffer.error() == EPIPE) return code != 0 ? code : kBrokenPipe;
  std::cerr << "nibble: error: cannot write to standard output: " << std::strerror(buffer.error())
            << std::endl;
  return code != 0 ? code : kFileError;
} catch (const std::bad_alloc&) {  // before there was anything that could say more
  constexpr int kNoMemory = 4;
  return kNoMemory;
}
