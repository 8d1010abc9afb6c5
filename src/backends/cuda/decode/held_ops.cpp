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
  for (size_t i = 0; i < launches.size(); ++i) {
    const auto* heads = std::get_if<held::SplitHeads>(&ops[i]);
    const auto* next = i + 1 < ops.size() ? std::get_if<held::Attention>(&ops[i + 1]) : nullptr;
    if (heads && next && attention_with_heads(c, *heads, *next)) {
      ++i;
    } else {
      launches[i]();
    }
  }
}

}  // namespace nibble::cuda
