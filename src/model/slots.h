// SPDX-License-Identifier: MIT
// The tensors of a model in memory, once for everything that is shaped like one: weights,
// gradients. The wiring names them; everything else walks the two lists of a block, so that a
// tensor more or less is a change here, in params.cpp (name and shape in files) and in the wiring.
#pragma once
#include <array>
#include <type_traits>
#include <vector>

#include "core/error.h"
#include "core/tensor.h"
#include "model/params.h"

namespace nibble {

// Where a tensor of a block is.
template <class Block, class T>
struct BlockMember {
  ParamSlot slot;
  T Block::*at;
};

// Whole is what holds a tensor used as it is, Linear what holds the weight of a linear layer.
template <class Whole, class Linear>
struct BlockSlots {
  Whole attn_norm;       // [C]
  Linear qkv;            // [(Hq + 2 Hkv) D, C]: q, k, v rows stacked
  Whole qkv_bias;        // [(Hq + 2 Hkv) D]: q, k, v stacked; empty in families without
  Whole q_norm, k_norm;  // [D]; empty in families without
  Linear attn_out;       // [C, Hq D]
  Whole ffn_norm;        // [C]
  Linear gate_up;        // [2 F, C]: gate, up rows stacked
  Linear down;           // [C, F]

  // Norms and biases: never quantised, no decay.
  static constexpr auto vectors() {
    return std::to_array<BlockMember<BlockSlots, Whole>>(
        {{ParamSlot::attn_norm, &BlockSlots::attn_norm},
         {ParamSlot::qkv_bias, &BlockSlots::qkv_bias},
         {ParamSlot::q_norm, &BlockSlots::q_norm},
         {ParamSlot::k_norm, &BlockSlots::k_norm},
         {ParamSlot::ffn_norm, &BlockSlots::ffn_norm}});
  }
  static constexpr auto linears() {
    return std::to_array<BlockMember<BlockSlots, Linear>>(
        {{ParamSlot::qkv, &BlockSlots::qkv},
         {ParamSlot::attn_out, &BlockSlots::attn_out},
         {ParamSlot::gate_up, &BlockSlots::gate_up},
         {ParamSlot::down, &BlockSlots::down}});
  }
};

static_assert(sizeof(BlockSlots<char, char>) == BlockSlots<char, char>::vectors().size() +
                                                    BlockSlots<char, char>::linears().size(),
              "every member is in one of the lists");

template <class Whole, class Linear>
struct ModelSlots {
  Whole embed;  // [V, C]
  std::vector<BlockSlots<Whole, Linear>> block;
  Whole final_norm;  // [C]
  Linear head;       // [V, C]
};

// A parameter's rows of the tensor it is stacked in.
inline Tensor rows_of_param(Tensor slot, const ParamSpec& p) {
  return slot.slice(p.row_offset, p.shape[0]);
}

// The memory of a table entry: exactly one of the two is set.
template <class Whole, class Linear>
struct Slot {
  Whole* tensor = nullptr;
  Linear* linear = nullptr;
};

// `Model` is a ModelSlots, const or not.
template <class Model>
auto slot_of(Model& m, const ParamSpec& p) {
  using S = Slot<std::remove_reference_t<decltype((m.embed))>,
                 std::remove_reference_t<decltype((m.head))>>;
  switch (p.slot) {
    case ParamSlot::embed: return S{&m.embed, nullptr};
    case ParamSlot::final_norm: return S{&m.final_norm, nullptr};
    case ParamSlot::head: return S{nullptr, &m.head};
    default: break;
  }
  auto& block = m.block.at(size_t(p.layer));
  for (const auto& member : block.vectors()) {
    if (member.slot == p.slot) return S{&(block.*member.at), nullptr};
  }
  for (const auto& member : block.linears()) {
    if (member.slot == p.slot) return S{nullptr, &(block.*member.at)};
  }
  throw_internal("no tensor in memory for {}", p.name);
}

}  // namespace nibble
