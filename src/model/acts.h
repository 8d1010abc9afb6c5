// SPDX-License-Identifier: MIT
// Activation slots: named views of exactly what the forward writes and the backward reads. Where
// they point decides whether activations are kept or shared; the wiring never asks.
#pragma once
#include <vector>

#include "backend/backend.h"
#include "model/config.h"

namespace nibble {

// One packed batch in backend memory. All i32.
struct Batch {
  Tensor ids;        // [N]
  Tensor positions;  // [N]
  Tensor slots;      // [N] where each token's key and value go
  Tensor sequences;  // [S, 4], struct Sequence
  Tensor out_rows;   // [R] rows of the batch whose logits are wanted
  Tensor order{};    // [N] rows sorted by id, stably; only the backward reads it
  int64_t n() const { return ids.dim(0); }
  int64_t outputs() const { return out_rows.dim(0); }
};

// rstd*, lse: training only, empty in inference.
struct BlockActs {
  Tensor n1, rstd1;       // [N, C], [N]
  Tensor qkv;             // [N, (Hq + 2 Hkv) D] as projected; values become biased there
  Tensor q_rstd, k_rstd;  // [N Hq], [N Hkv]; empty where heads are not normalised
  Tensor q, k;            // [N, Hq, D], [N, Hkv, D] as attention reads them
  Tensor att, lse;        // [N, Hq, D], [N, Hq]
  Tensor mid;             // [N, C] residual stream after attention
  Tensor n2, rstd2;       // [N, C], [N]
  Tensor gate_up, act;    // [N, 2 F], [N, F]
};

enum class Keep {
  none,       // inference: one block slot whose halves share memory, one residual
  inputs,     // training, recomputing blocks: one block slot, every residual
  attention,  // training, recomputing feed-forwards: all blocks share n2, gate_up and act
  all,        // training: everything
};

struct Acts {
  std::vector<Tensor> x;         // [N, C] residual stream before each block, and after the last
  std::vector<BlockActs> block;  // one per layer, or one for all
  Tensor tmp;                    // [N, C] a projection on its way into the residual stream
  Tensor rope;                   // [N, D] cosines and sines of this batch's positions
  RopeFrequencies frequencies;   // what they are made from
  StillPairs still;              // of the bias of keys
  Tensor x_out, n_out;           // [R, C] the wanted rows, before and after the final norm
  Tensor rstd_out;               // [R], training only
  Tensor logits;                 // [R, V] f32, inference only: training takes them in pieces
  Keep keep = Keep::none;
  BlockActs& of(int64_t layer) { return block[block.size() == 1 ? 0 : size_t(layer)]; }
};

struct ActsShape {
  int64_t tokens = 1;   // N
  int64_t outputs = 1;  // R
  DType act = DType::f32;
  DType stat = DType::f32;  // rstd, rope table, logits: f32, or act on the reference backend
  Keep keep = Keep::none;
  bool logits = true;  // in inference; false: the caller makes them in pieces
};
Acts make_acts(Arena& arena, const Config& config, const ActsShape& shape);

// What the backward needs beside the slots, which it consumes: most gradients are written over the
// activation they belong to.
struct BackActs {
  Tensor dx;    // [N, C] gradient of the residual stream
  Tensor datt;  // [N, Hq, D]
  Tensor dqkv;  // [N, (Hq + 2 Hkv) D]
};
BackActs make_back_acts(Arena& arena, const Config& config, const ActsShape& shape);

}  // namespace nibble
