// SPDX-License-Identifier: MIT
#include "backends/cuda/decode/held_ops.h"

namespace nibble::cuda {

void HeldOps::release(const Context& c) {
  if (ops_.empty()) return;
  const std::vector<std::function<void()>> launches = std::move(launches_);
  const std::vector<held::Op> ops = std::move(ops_);
  forget();
  if (launch_as_token(c, ops)) {
    ++whole_tokens_;
    return;
  }
  for (const auto& launch : launches) launch();
}

}  // namespace nibble::cuda
