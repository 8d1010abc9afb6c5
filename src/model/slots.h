// SPDX-License-Identifier: MIT
// Where a parameter of the table lives in anything shaped like a model: weights, gradients.
#pragma once
#include "core/error.h"
#include "model/params.h"

namespace nibble {

// Exactly one of the two is set.
template <class Whole, class Linear>
struct Slot {
  Whole* tensor = nullptr;
  Linear* linear = nullptr;
};

template <class Set>
auto slot_in(Set& s, const ParamSpec& p) {
  using Block = typename decltype(s.block)::value_type;
  using S = Slot<decltype(Set::embed), decltype(Set::head)>;
  Block* b = p.layer >= 0 ? &s.block.at(size_t(p.layer)) : nullptr;
  switch (p.slot) {
    case ParamSlot::embed: return S{&s.embed, nullptr};
    case ParamSlot::final_norm: return S{&s.final_norm, nullptr};
    case ParamSlot::head: return S{nullptr, &s.head};
    case ParamSlot::attn_norm: return S{&b->attn_norm, nullptr};
    case ParamSlot::q_norm: return S{&b->q_norm, nullptr};
    case ParamSlot::k_norm: return S{&b->k_norm, nullptr};
    case ParamSlot::ffn_norm: return S{&b->ffn_norm, nullptr};
    case ParamSlot::qkv: return S{nullptr, &b->qkv};
    case ParamSlot::attn_out: return S{nullptr, &b->attn_out};
    case ParamSlot::gate_up: return S{nullptr, &b->gate_up};
    case ParamSlot::down: return S{nullptr, &b->down};
  }
  throw_internal("unknown parameter slot {}", int(p.slot));
}

}  // namespace nibble
