// SPDX-License-Identifier: MIT
#include "model/acts.h"

#include <algorithm>

namespace nibble {
namespace {

// `shared`: a block whose feed-forward slots this one takes over, or null.
BlockActs make_block_acts(Arena& a, const Config& c, const ActsShape& s, const BlockActs* shared) {
  const int64_t n = s.tokens;
  const bool training = s.keep != Keep::none;
  BlockActs b;
  b.n1 = a.take(s.act, {n, c.C});
  const size_t attention = a.mark();
  b.qkv = a.take(s.act, {n, c.qkv_rows()});
  b.q = a.take(s.act, {n, c.Hq, c.D});
  b.k = a.take(s.act, {n, c.Hkv, c.D});
  b.att = a.take(s.act, {n, c.Hq, c.D});
  // Nobody looks back in inference: the feed-forward's slots lie over the attention's.
  const size_t attention_end = a.mark();
  if (!training) a.release(attention);
  b.gate_up = shared ? shared->gate_up : a.take(s.act, {n, 2 * c.F});
  b.act = shared ? shared->act : a.take(s.act, {n, c.F});
  a.release(std::max(a.mark(), attention_end));
  b.mid = a.take(s.act, {n, c.C});
  b.n2 = shared ? shared->n2 : training ? a.take(s.act, {n, c.C}) : b.n1;
  if (training) {
    b.rstd1 = a.take(s.stat, {n});
    if (c.qk_norm) {
      b.q_rstd = a.take(s.stat, {n * c.Hq});
      b.k_rstd = a.take(s.stat, {n * c.Hkv});
    }
    b.lse = a.take(s.stat, {n, c.Hq});
    b.rstd2 = a.take(s.stat, {n});
  }
  return b;
}

}  // namespace

Acts make_acts(Arena& a, const Config& c, const ActsShape& s) {
  Acts acts;
  for (int64_t l = 0; l <= c.L; ++l) {
    // A block's input is read for the last time before its output is written.
    const bool fresh = s.keep != Keep::none || l == 0;
    acts.x.push_back(fresh ? a.take(s.act, {s.tokens, c.C}) : acts.x[0]);
  }
  acts.keep = s.keep;
  const bool every = s.keep == Keep::all || s.keep == Keep::attention;
  for (int64_t l = 0; l < (every ? c.L : 1); ++l) {
    const bool shares = s.keep == Keep::attention && l > 0;
    acts.block.push_back(make_block_acts(a, c, s, shares ? &acts.block[0] : nullptr));
  }
  acts.tmp = a.take(s.act, {s.tokens, c.C});
  acts.rope = a.take(s.stat, {s.tokens, c.D});
  acts.frequencies = rope_frequencies(c.rope, c.D);
  acts.still = still_pairs(acts.frequencies, c.max_positions);
  acts.x_out = a.take(s.act, {s.outputs, c.C});
  acts.n_out = a.take(s.act, {s.outputs, c.C});
  if (s.keep == Keep::none && s.logits) {
    acts.logits = a.take(s.stat, {s.outputs, c.V});
  } else if (s.keep != Keep::none) {
    acts.rstd_out = a.take(s.stat, {s.outputs});
  }
  return acts;
}

BackActs make_back_acts(Arena& a, const Config& c, const ActsShape& s) {
  BackActs d;
  d.dx = a.take(s.act, {s.tokens, c.C});
  d.datt = a.take(s.act, {s.tokens, c.Hq, c.D});
  d.dqkv = a.take(s.act, {s.tokens, c.qkv_rows()});
  return d;
}

}  // namespace nibble
