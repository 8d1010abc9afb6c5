// SPDX-License-Identifier: MIT
// A step of decoding as a value: one new token of each of N sequences, from its id to its logits,
// through all blocks of a decoder. Backend::decode_step takes one; model/decoder.cpp makes it
// beside the forward pass it describes, and a test holds the two against each other.
#pragma once
#include <string>
#include <vector>

#include "backend/rope.h"
#include "backend/weight_views.h"
#include "quant/recipe.h"

namespace nibble {

// One block: x += attn_out . attention(heads(qkv . norm(x))); x += down . swiglu(gate_up .
// norm(x)).
struct DecodeLayer {
  Tensor attn_norm;  // f32 (or act) [C]
  LinearWeight qkv;  // [(Hq + 2 Hkv) D, C]
  HeadParams heads;
  LinearWeight attn_out;  // [C, Hq D]
  Tensor ffn_norm;        // [C]
  LinearWeight gate_up;   // [2 F, C]
  LinearWeight down;      // [C, F]
  KvView kv;              // [slots, Hkv, D], of the cache
};

struct DecodePlan {
  // The tables of the step, i32. A sequence has one new token: row n of the batch is sequence n.
  Tensor ids, positions, slots;  // [N]
  Tensor sequences;              // [N, 4], struct Sequence
  Tensor embed;                  // [V, C]
  std::vector<DecodeLayer> layers;
  Tensor final_norm;  // [C]
  LinearWeight head;  // [V, C]
  // Memory of the step: the embedded tokens, the rotation table, and the result.
  Tensor x;       // act [N, C]
  Tensor rope;    // f32 (or act) [N, D]
  Tensor logits;  // f32 (or act) [N, V]
  int64_t q_heads = 0, kv_heads = 0, head_width = 0;
  RopeFrequencies frequencies;  // of the rotation table
  double eps = 0;
  Activations activations = Activations::none;  // of packed weights
};

// How a backend runs a plan.
struct DecodeWay {
  bool one_launch = false;  // all blocks and the head as one kernel
  std::string text;         // for the log: the way and why; empty where there is none to choose
};

}  // namespace nibble
