// SPDX-License-Identifier: MIT
// The op set of the model: what a transformer step is made of, nothing finer. The public functions
// state the contract and validate shapes and types once; a backend overrides only the do_ half.
//
// Conventions for every op: outputs first, then inputs, then scalars. Outputs are overwritten and
// never alias inputs unless the contract says so. Work is enqueued on the backend's stream; only
// download() and sync() wait for it. Kernels trust their arguments.
//
// Letters: N tokens in the batch, C model width, Hq/Hkv query/key heads, D head width, F
// feed-forward width, V vocabulary. "act" is the compute type of the run (f32, bf16, f16; f64 and
// c128 on the reference backend).
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/arena.h"
#include "core/tensor.h"
#include "quant/recipe.h"

namespace nibble {

// Where the keys and values of one layer live. In training it is the layer's own activations, in
// inference the cache; both are [slots, Hkv, D] and may be strided in dimension 0.
struct KvView {
  Tensor k, v;
};

// Fields of one row of the sequence table, an i32 tensor [S, 4]. A sequence has q_len new tokens,
// rows q_begin.. of the batch, whose keys are the last of kv_len slots from kv_begin on: token i
// attends to slots kv_begin .. kv_begin + kv_len - q_len + i. So a chunk of several tokens on a
// non-empty cache is causal inside the chunk.
struct Sequence {
  int32_t q_begin, q_len, kv_begin, kv_len;
};
static_assert(sizeof(Sequence) == 16);

// W [out, in] of a linear layer in backend memory: dense, or packed NVFP4 in the backend's own
// layout (made by pack_rows from the canonical one).
struct LinearWeight {
  int64_t out = 0, in = 0;
  Tensor dense;      // [out, in] f32, bf16 or f16 (reference: act); empty when packed
  Tensor packed;     // u8 [packed_bytes(out, in)]; empty when dense
  Tensor row_scale;  // f32 [out] or empty: per-tensor global scales, applied to the output
  bool is_packed() const { return bool(packed); }
};

enum class Rotation { forward, backward };  // a rotation's gradient is the opposite rotation

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string name() const = 0;  // "cpu (AVX3_DL, 2 threads)"

  // --- Memory ---
  // Zeroed memory; DeviceError that says what was wanted and what there is when it cannot be had.
  Buffer allocate(size_t n_bytes, std::string_view what);
  virtual uint64_t available_memory() const { return UINT64_MAX; }
  void upload(Tensor dst, const void* host);  // dst contiguous
  void download(void* host, Tensor src);      // src contiguous; waits
  void copy(Tensor dst, Tensor src);          // same type and shape; strides may differ
  void sync() { do_sync(); }

  // --- Weights ---
  // Bytes of an NVFP4 weight in this backend's layout.
  size_t packed_bytes(int64_t out, int64_t in) const { return do_packed_bytes(out, in); }
  // Rows [row_begin, row_begin + rows) of `w` from the canonical layout in host memory:
  // codes [rows, in/2], scales [rows, in/16]. Rows may come in any order and chunking.
  void pack_rows(const LinearWeight& w, int64_t row_begin, int64_t rows,
                 std::span<const uint8_t> codes, std::span<const uint8_t> scales);
  // The inverse of pack_rows, bit for bit except that a negative scale comes back positive with
  // the signs of its codes flipped.
  void unpack_rows(const LinearWeight& w, int64_t row_begin, int64_t rows, std::span<uint8_t> codes,
                   std::span<uint8_t> scales) const;

  // --- Forward ---
  // out[n] = table[ids[n]]. out act [N, C], table [V, C] f32/bf16/f16/act, ids i32 [N].
  void embed(Tensor out, Tensor table, Tensor ids);
  // out = x * rstd * w over the last dimension. x, out act [N, C] or [N, H, D] (may be strided),
  // w f32 (or act) [last], rstd f32 (or act) [rows] or empty. out may alias x.
  void rms_norm(Tensor out, Tensor rstd, Tensor x, Tensor w, double eps);
  // sum = a + b; out = rms_norm(sum). sum may alias a or b. Fused: default is add, rms_norm.
  void add_rms_norm(Tensor out, Tensor rstd, Tensor sum, Tensor a, Tensor b, Tensor w, double eps);
  // table[n] = cos then sin of positions[n] * theta^(-2i/D), i < D/2. table f32 (or act) [N, D],
  // positions i32 [N]. Angles are formed in double: at position 100,000 float is off by 0.006 rad.
  void rope_table(Tensor table, Tensor positions, double theta);
  // Half-split rotation of x act [N, H, D] by table [N, D]. out may alias x.
  void rope(Tensor out, Tensor x, Tensor table, Rotation rotation);
  // rms_norm over each head, then rope: x, out act [N, H, D] (x may be strided, out may alias x),
  // rstd [N * H] or empty. Fused: default is rms_norm, rope.
  void norm_rope(Tensor out, Tensor rstd, Tensor x, Tensor w, Tensor table, double eps);
  // kv.k[slots[n]] = k[n], likewise v; converts to the cache's type. A no-op where k and v already
  // are the view's own memory (training). k, v act [N, Hkv, D], slots i32 [N].
  void kv_append(KvView kv, Tensor k, Tensor v, Tensor slots);
  // Causal grouped-query attention with scale 1/sqrt(D): query head h reads key head h / (Hq/Hkv).
  // out, q act [N, Hq, D]; lse f32 (or act) [N, Hq] or empty; sequences i32 [S, 4].
  void attention(Tensor out, Tensor lse, Tensor q, KvView kv, Tensor sequences);
  // out = silu(gate) * up. All act [N, F]; gate and up may be strided; out may alias either.
  void swiglu(Tensor out, Tensor gate, Tensor up);
  // out = a + b, act, same shape. out may alias a or b.
  void add(Tensor out, Tensor a, Tensor b);
  // out[i] = x[rows[i]]. out, x act [*, C], rows i32 [n].
  void gather_rows(Tensor out, Tensor x, Tensor rows);
  // out[n] = index of the first largest logit. out i32 [N], logits [N, V] f32 (or act).
  void argmax(Tensor out, Tensor logits);

  // --- Linear ---
  // out = x . W^T, fp32 accumulation. x act [N, in], out act or f32 [N, out].
  // Activations::none uses x as it is; int8 quantises x per 32 elements (quant/int8.h) and needs a
  // packed weight; nvfp4 quantises x per 16 elements by rule absmax (W4A4).
  // A row's result does not depend on the other rows or on N, bit for bit: that is what makes
  // prefill, chunks and single tokens agree.
  void linear(Tensor out, Tensor x, const LinearWeight& w, Activations activations);

  // --- Loss ---
  // loss[n] = logsumexp(logits[n]) - logits[n][targets[n]]; 0 where targets[n] < 0.
  // loss f32 (or act) [N], logits f32 (or act) [N, V], targets i32 [N].
  void cross_entropy(Tensor loss, Tensor logits, Tensor targets);

  // Names an intermediate of the wiring; does nothing except on a recording backend. layer is -1
  // outside the blocks.
  void note(std::string_view name, int64_t layer, Tensor value) { do_note(name, layer, value); }

 protected:
  // For fused defaults and decorators.
  virtual void do_add_rms_norm(Tensor out, Tensor rstd, Tensor sum, Tensor a, Tensor b, Tensor w,
                               double eps);
  virtual void do_norm_rope(Tensor out, Tensor rstd, Tensor x, Tensor w, Tensor table, double eps);

 private:
  virtual Buffer do_allocate(size_t n_bytes, std::string_view what) = 0;
  virtual void do_upload(Tensor dst, const void* host) = 0;
  virtual void do_download(void* host, Tensor src) = 0;
  virtual void do_copy(Tensor dst, Tensor src) = 0;
  virtual void do_sync() = 0;
  virtual size_t do_packed_bytes(int64_t out, int64_t in) const = 0;
  virtual void do_pack_rows(const LinearWeight& w, int64_t row_begin, int64_t rows,
                            const uint8_t* codes, const uint8_t* scales) = 0;
  virtual void do_unpack_rows(const LinearWeight& w, int64_t row_begin, int64_t rows,
                              uint8_t* codes, uint8_t* scales) const = 0;
  virtual void do_embed(Tensor out, Tensor table, Tensor ids) = 0;
  virtual void do_rms_norm(Tensor out, Tensor rstd, Tensor x, Tensor w, double eps) = 0;
  virtual void do_rope_table(Tensor table, Tensor positions, double theta) = 0;
  virtual void do_rope(Tensor out, Tensor x, Tensor table, Rotation rotation) = 0;
  virtual void do_kv_append(KvView kv, Tensor k, Tensor v, Tensor slots) = 0;
  virtual void do_attention(Tensor out, Tensor lse, Tensor q, KvView kv, Tensor sequences) = 0;
  virtual void do_swiglu(Tensor out, Tensor gate, Tensor up) = 0;
  virtual void do_add(Tensor out, Tensor a, Tensor b) = 0;
  virtual void do_gather_rows(Tensor out, Tensor x, Tensor rows) = 0;
  virtual void do_argmax(Tensor out, Tensor logits) = 0;
  virtual void do_linear(Tensor out, Tensor x, const LinearWeight& w, Activations activations) = 0;
  virtual void do_cross_entropy(Tensor loss, Tensor logits, Tensor targets) = 0;
  virtual void do_note(std::string_view, int64_t, Tensor) {}
};

}  // namespace nibble
