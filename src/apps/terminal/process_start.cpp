// SPDX-License-Identifier: MIT
#include "apps/terminal/process_start.h"

#include <fcntl.h>
#include <unistd.h>

#include <csignal>

#include "core/durable/last_words.h"
#include "core/durable/temporary.h"
#include "guard/interrupt.h"
#include "guard/terminal_state.h"

namespace nibble {
namespace {

// Interrupted: take half-written files along, then end as the signal would have.
extern "C" void end_cleanly(int signal) {
  restore_terminal();
  remove_temporary_files();
  write_last_words();
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

}  // namespace

void open_missing_streams() {
  // open() takes the lowest free number, so going upwards each lands where it belongs.
  for (int fd = 0; fd <= 2; ++fd) {
    if (::fcntl(fd, F_GETFD) >= 0) continue;
    if (::open("/dev/null", O_RDWR) != fd) ::_exit(3);  // no /dev/null, and nobody to tell
  }
}

void take_signals() {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    if (!is_ignored(signal)) std::signal(signal, end_cleanly);
  }
  for (const int signal : {SIGPIPE, SIGXFSZ}) std::signal(signal, SIG_IGN);
}

}  // namespace nibble
