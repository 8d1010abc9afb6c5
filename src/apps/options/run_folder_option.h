// SPDX-License-Identifier: MIT
// The flags that say where a run is recorded.
#pragma once
#include "apps/options/options.h"
#include "runlog/run_folder.h"

namespace nibble {

inline void visit_fields(RunFolderOptions& o, Fields& f) {
  f.section("Run record");
  f.add(o.runs_dir,
        {.flag = "--runs-dir", .help = "Where each run gets its folder", .value = "DIR"});
  f.add(o.run_name, {.flag = "--run-name",
                     .help = "Name of this run's folder; default: the time and the command",
                     .value = "NAME"});
  f.add(o.note, {.flag = "--note",
                 .help = "Why this run is made, for the diary (nibble runs export --append)",
                 .value = "TEXT"});
}

}  // namespace nibble
