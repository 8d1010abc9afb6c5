// SPDX-License-Identifier: MIT
// Options of commands that keep the CPU busy.
#pragma once
#include "apps/options/options.h"
#include "core/thread_pool.h"

namespace nibble {

struct WorkOptions {
  int32_t threads = 0;

  void visit_fields(Fields& f) {
    f.add(threads, {.flag = "--threads",
                    .help = "CPU threads; 0 takes all of this process. Never changes a result",
                    .least = 0,
                    .most = 1024});
  }
  int thread_count() const { return threads > 0 ? threads : default_thread_count(); }
};

}  // namespace nibble
