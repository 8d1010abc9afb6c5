// SPDX-License-Identifier: MIT
// In place of nccl_comm.cpp where nibble is built without NCCL.
#include "comm/nccl.h"
#include "core/error.h"

namespace nibble {

std::string nccl_library() { return {}; }

std::unique_ptr<Comm> make_nccl_comm(Comm&, void*, double) {
  throw_usage("this nibble was built without NCCL (-DNIBBLE_NCCL=ON, package libnccl-dev)");
}

}  // namespace nibble
