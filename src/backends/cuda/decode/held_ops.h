// SPDX-License-Identifier: MIT
// Ops that are held back while a sequence of them is recorded. Where together they are one token of
// one sequence through the whole model, one launch replaces them (token_kernel.cu); otherwise they
// are launched one by one, in order, but for the pairs that attention_with_heads takes.
#pragma once
#include <functional>
#include <span>
#include <variant>
#include <vector>

#include "backend/backend.h"
#include "backends/cuda/context.h"

namespace nibble::cuda {

namespace held {
struct Norm {
  Tensor out, rstd, x, w;
  double eps;
};
struct AddNorm {
  Tensor out, rstd, sum, a, b, w;
  double eps;
};
struct Add {
  Tensor out, a, b;
};
struct Linear {
  Tensor out, x;
  LinearWeight w;
  Activations activations;
};
struct LinearSwiglu {
  Tensor act, gate_up, x;
  LinearWeight w;
  Activations activations;
};
struct SplitHeads {
  HeadSlots out;
  KvView kv;
  Tensor qkv;
  HeadNorms norms;
  Tensor table, slots;
  double eps;
};
struct Attention {
  Tensor out, lse, q;
  KvView kv;
  Tensor sequences;
};
struct Gather {
  Tensor out, x, rows;
};
using Op = std::variant<Norm, AddNorm, Add, Linear, LinearSwiglu, SplitHeads, Attention, Gather>;
}  // namespace held

class HeldOps {
 public:
  void hold(held::Op op, std::function<void()> launch) {
    ops_.push_back(std::move(op));
    launches_.push_back(std::move(launch));
  }
  // Launches what is held.
  void release(const Context& c);
  void forget() { ops_.clear(), launches_.clear(); }
  // How many recordings became one launch.
  int whole_tokens() const { return whole_tokens_; }

 private:
  std::vector<held::Op> ops_;
  std::vector<std::function<void()>> launches_;
  int whole_tokens_ = 0;
};

// match_token.cu: launches the ops as one kernel where they are a whole token and this device can
// run it. Its results are those that outlive a token: the cache and the logits.
bool launch_as_token(const Context& c, std::span<const held::Op> ops);
// kernels/attention_decode_many.cu: the two as one kernel, where they are one new token each of
// many sequences. q and k of split_heads are not written then: they do not outlive a token.
bool attention_with_heads(const Context& c, const held::SplitHeads& s, const held::Attention& a);
// token_kernel.cu: loads the kernel, which nothing launches before it is recorded, and while a
// sequence is recorded nothing may be loaded.
void prepare_token(const Context& c);

}  // namespace nibble::cuda
