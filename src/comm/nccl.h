// SPDX-License-Identifier: MIT
// Ranks with a GPU each, joined by NCCL, in the GPU's memory and on a stream. Everything but the
// exchange is NCCL's own: its sums are in its order, the same in every run on the same ranks.
#pragma once
#include <memory>
#include <string>

#include "comm/comm.h"

namespace nibble {

// The NCCL this was built with: "2.21.5"; empty: none.
std::string nccl_library();
// On the current device; `stream` is a cudaStream_t. `host` joined the same ranks, carries what
// NCCL needs to find them and everything that is host memory; it must outlive the result. Calls
// are enqueued on the stream and waited for.
std::unique_ptr<Comm> make_nccl_comm(Comm& host, void* stream, double limit_seconds);

}  // namespace nibble
