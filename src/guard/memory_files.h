// SPDX-License-Identifier: MIT
// Memory that processes hold as files: memfd_create, and shared memory whose name is gone. Pages
// that are written and not mapped are in no process's resident set, and vanish with its end.
#pragma once
#include <cstdint>
#include <span>

#include "guard/process_tree.h"

namespace nibble {

// Of all these processes together, each file once, without what they have mapped of it (which is
// resident and counted there).
uint64_t memory_file_bytes(std::span<const ProcessInfo> processes);

}  // namespace nibble
