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
// c128 on the reference backend); "stat" is f32, or act on the reference backend.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "backend/decode_plan.h"
#include "backend/hand_over.h"
#include "backend/sampling.h"
#include "backend/traits.h"
#include "backend/weight_views.h"
#include "core/arena.h"
#include "core/memory/reserved_pages.h"
#include "core/tensor.h"
#include "optim/adamw.h"
#include "quant/nvfp4.h"
#include "quant/recipe.h"

namespace nibble {

// What a backend remembers of a sequence of ops it has run before (repeat).
class Recording {
 public:
  virtual ~Recording() = default;
};

enum class Rotation { forward, backward };  // a rotation's gradient is the opposite rotation
enum class Accumulate { no, yes };          // overwrite, or add to what is there

// How a gradient is written. Overwriting rounds to nearest. Adding to a bf16 gradient rounds
// stochastically with the random bits of (seed, stream, offset + element of dw): sums of many
// micro-batches rounded to nearest would lose every contribution below half a step.
struct GradWrite {
  Accumulate accumulate = Accumulate::no;
  uint64_t seed = 0, stream = 0;
  int64_t offset = 0;  // elements of the whole gradient before dw, which is a part of its rows
};

// Parts of a sum of squares that are enough for every backend's linear_wgrad_squares: CUDA's makes
// one in each multiprocessor, of which GPUs of compute capability 9.0 have 144 at most.
constexpr int64_t kSquareParts = 144;

// The packed copy an optimizer step keeps up to date; empty: there is none.
struct Requantize {
  const LinearWeight* weight = nullptr;
  int64_t row_offset = 0;  // of the parameter's rows in the weight
  ScaleRule rule = ScaleRule::four_over_six;
};

// Of elements [begin, begin + count) of a parameter; see Backend::adamw_steps.
struct AdamwUpdate {
  Tensor master, grad, m, v;
  MomentFormat format = MomentFormat::f32;
  int64_t begin = 0, count = 0;
  AdamwStep step;
  Requantize requantize;
};

// Where memory is. host: the CPU's, which ops reach more slowly; the same thing where
// memory_is_host().
enum class Place { device, host };

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string name() const = 0;  // "cpu (AVX3_DL, 2 threads)"
  virtual BackendTraits traits() const { return {}; }
  // Which kernels products of packed weights use, for the log; "" where there is nothing to choose.
  virtual std::string linear_kernels(DType /*compute*/, Activations) const { return {}; }

  // --- Memory ---
  // Zeroed memory; DeviceError that says what was wanted and what there is when it cannot be had.
  Buffer allocate(size_t n_bytes, std::string_view what, Place place = Place::device);
  // Addresses whose memory comes page by page (traits().page_bytes) when it is written, and reads
  // as zero until then; at most `used` bytes of it at a time, which must be available. Pages can be
  // given back, and shown at several addresses.
  std::unique_ptr<ReservedPages> reserve(size_t n_bytes, size_t used, std::string_view what);
  virtual uint64_t available_memory() const { return UINT64_MAX; }
  virtual uint64_t available_host_memory() const { return available_memory(); }
  virtual bool memory_is_host() const { return true; }  // false: a device has memory of its own
  DeviceMemory device_memory() const { return device_memory_reader()(); }
  // Asks the same, and may do so when the backend is gone: what is left then is said, too.
  virtual ReadDeviceMemory device_memory_reader() const {
    return [] { return DeviceMemory(); };
  }
  // What updates of masters in Place::host take of the device's memory, once there is such memory.
  virtual uint64_t host_update_bytes() const { return 0; }
  void upload(Tensor dst, const void* host);  // dst contiguous
  void download(void* host, Tensor src);      // src contiguous; waits
  void copy(Tensor dst, Tensor src);          // same type and shape; strides may differ
  void sync() { do_sync(); }
  // Runs `ops`, a sequence of ops (no download, no sync) that is the same at every call: the same
  // ops on the same tensors. A backend may record them and replay the recording (traits().records).
  // A new recording is begun by resetting the pointer.
  void repeat(std::unique_ptr<Recording>& recording, const std::function<void()>& ops) {
    do_repeat(recording, ops);
  }
  // See backend/hand_over.h; null where the backend has none.
  virtual std::unique_ptr<HandOver> make_hand_over() { return nullptr; }

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

  // Rows of `w` from floats in backend memory: src f32, bf16, f16 or act [rows, in], which may be
  // one of the model's own tensors. A row's global scale is w.row_scale's, 1 without.
  void quantize_rows(const LinearWeight& w, int64_t row_begin, Tensor src, ScaleRule rule);
  // A view of rows [row_begin, row_begin + rows) of `w`; row_begin % kRowPanel == 0.
  LinearWeight rows_of(const LinearWeight& w, int64_t row_begin, int64_t rows) const;

  // --- Forward ---
  // out[n] = table[ids[n]]. out act [N, C], table [V, C] f32/bf16/f16/act, ids i32 [N].
  void embed(Tensor out, Tensor table, Tensor ids);
  // out = x * rstd * w over the last dimension. x, out act [N, C] or [N, H, D] (may be strided),
  // w f32 (or act) [last], rstd f32 (or act) [rows] or empty. out may alias x.
  void rms_norm(Tensor out, Tensor rstd, Tensor x, Tensor w, double eps);
  // sum = a + b; out = rms_norm(sum). sum may alias a or b. Fused: default is add, rms_norm.
  void add_rms_norm(Tensor out, Tensor rstd, Tensor sum, Tensor a, Tensor b, Tensor w, double eps);
  // table[n] = cos then sin of positions[n] * turns[i], i < D/2, times the factor. table f32 (or
  // act) [N, D], positions i32 [N]. Angles are formed in double: at position 100,000 float is off
  // by 0.006 rad.
  void rope_table(Tensor table, Tensor positions, const RopeFrequencies& frequencies);
  // Half-split rotation of x act [N, H, D] by table [N, D]. out may alias x.
  void rope(Tensor out, Tensor x, Tensor table, Rotation rotation);
  // rms_norm over each head, then rope: x, out act [N, H, D] (x may be strided, out may alias x),
  // rstd [N * H] or empty. Fused: default is rms_norm, rope.
  void norm_rope(Tensor out, Tensor rstd, Tensor x, Tensor w, Tensor table, double eps);
  // out = x + bias, formed in f32 and rounded once. x, out act [N, H, D] (may be strided, out may
  // alias x), bias f32 (or act) [H D].
  void add_bias(Tensor out, Tensor x, Tensor bias);
  // The same, then rope, and for the pairs of `still` less factor * bias; formed in f32 and rounded
  // once. out may alias x.
  void bias_rope(Tensor out, Tensor x, Tensor bias, Tensor table, StillPairs still);
  // kv.k[slots[n]] = k[n], likewise v; converts to the cache's type. A no-op where k and v already
  // are the view's own memory (training). k, v act [N, Hkv, D], slots i32 [N].
  void kv_append(KvView kv, Tensor k, Tensor v, Tensor slots);
  // Splits qkv act [N, (Hq + 2 Hkv) D] (may be strided) into heads: q and k normalised or biased
  // (or neither) and rotated, v biased, k and v put into kv at slots. With a bias the values lie in
  // qkv with it afterwards where that is their place in kv (training), else they may hold
  // anything. Fused: default is norm_rope, bias_rope or rope twice, add_bias, kv_append.
  void split_heads(const HeadSlots& out, KvView kv, Tensor qkv, const HeadParams& params,
                   Tensor table, Tensor slots, double eps);
  // Causal grouped-query attention with scale 1/sqrt(D): query head h reads key head h / (Hq/Hkv).
  // out, q act [N, Hq, D]; lse f32 (or act) [N, Hq] or empty; sequences i32 [S, 4].
  void attention(Tensor out, Tensor lse, Tensor q, KvView kv, Tensor sequences);
  // split_heads, then attention over kv: out, lse as in attention. Where kv is not k's own memory
  // (inference) q and k are scratch: afterwards they may hold anything. Fused: default is the two.
  void split_heads_attention(Tensor out, Tensor lse, const HeadSlots& heads, KvView kv, Tensor qkv,
                             const HeadParams& params, Tensor table, Tensor slots, Tensor sequences,
                             double eps);
  // out = silu(gate) * up. All act [N, F]; gate and up may be strided; out may alias either.
  void swiglu(Tensor out, Tensor gate, Tensor up);
  // out = a + b, act, same shape. out may alias a or b.
  void add(Tensor out, Tensor a, Tensor b);
  // out[i] = x[rows[i]]. out, x act [*, C], rows i32 [n].
  void gather_rows(Tensor out, Tensor x, Tensor rows);
  // out[n] = the token chosen from logits[n] by the rule of backend/sampling.h, -1 where there is
  // none to choose. out i32 [N], logits [N, V] f32 (or act, taken as f32), rows i32 [N, 16] (struct
  // SampleRow), context i32 [*] or empty: without it no row has a penalty.
  void sample(Tensor out, Tensor logits, Tensor rows, Tensor context, Choice choice);

  // --- Linear ---
  // out = x . W^T, fp32 accumulation. x act [N, in], out act or f32 [N, out].
  // Activations::none uses x as it is; int8 quantises x per 32 elements (quant/int8.h) and needs a
  // packed weight; nvfp4 quantises x per 16 elements by rule absmax (W4A4).
  // Where traits().batch_invariant(act) a row's result does not depend on the other rows or on N,
  // bit for bit: that is what makes prefill, chunks and single tokens agree.
  void linear(Tensor out, Tensor x, const LinearWeight& w, Activations activations);
  // gate_up = x . W^T, act = silu(gate) * up of its two halves. act [N, F], gate_up [N, 2 F], both
  // of type act. Fused: default is linear, swiglu.
  void linear_swiglu(Tensor act, Tensor gate_up, Tensor x, const LinearWeight& w,
                     Activations activations);

  // --- A whole step of decoding ---
  // Runs `plan`; `plain` is the same as a sequence of ops, which is what the default calls. A
  // backend with a better way leaves in the cache and the logits what plain() would, bit for bit;
  // the activations plain() works in may hold anything afterwards. May be recorded.
  void decode_step(const DecodePlan& plan, const std::function<void()>& plain);
  // Which way decode_step takes.
  DecodeWay decode_way(const DecodePlan& plan) const;

  // --- Loss ---
  // The vocabulary may come in pieces: logits [N, Vc] are columns v_begin .. v_begin + Vc.
  // stats [N, 3] stat: the largest logit, the sum of exp(logit - largest), the target's logit
  // (targets i32 [N], < 0: none). Accumulate::no starts anew, yes adds a piece.
  void softmax_stats(Tensor stats, Tensor logits, Tensor targets, int64_t v_begin,
                     Accumulate accumulate);
  // loss[n] = logsumexp - target's logit, from finished stats; 0 where targets[n] < 0.
  // loss stat [N].
  void cross_entropy(Tensor loss, Tensor stats, Tensor targets);
  // dlogits = (softmax - one hot) * scale, rows without a target 0. dlogits act [N, Vc]; may alias
  // logits where the types are the same.
  void cross_entropy_back(Tensor dlogits, Tensor logits, Tensor stats, Tensor targets,
                          int64_t v_begin, double scale);
  // The divergence KL(teacher || model) of rows whose words stay the model's own, a piece of the
  // vocabulary at a time. With q and p the softmax of teacher and logits by their finished stats:
  // loss[n] = sum over the piece of q (log q - log p), added to what is there with Accumulate::yes;
  // dlogits = (p - q) * scale, or empty: not wanted. loss stat [N]; logits and teacher [N, Vc] of
  // one type; dlogits act [N, Vc], which may alias logits where the types are the same. Both sides
  // go through the same arithmetic: of equal logits loss and dlogits are exactly 0.
  void divergence(Tensor loss, Tensor dlogits, Tensor logits, Tensor stats, Tensor teacher,
                  Tensor teacher_stats, double scale, Accumulate accumulate);
  // loss[n] = mean over C of |h[n] - table[targets[n]]|, dh = sign(h - table[...]) * scale / C;
  // both 0 where targets[n] < 0. h act [N, C], dh act or stat [N, C], table as in embed.
  void l1_loss(Tensor loss, Tensor dh, Tensor h, Tensor table, Tensor targets, double scale);

  // --- Backward (gradients of the forward ops; foo_back mirrors foo) ---
  // dx = dy . W, fp32 accumulation. dy act [N, out] (may be strided), dx act or stat [N, in].
  void linear_dgrad(Tensor dx, Tensor dy, const LinearWeight& w, Accumulate accumulate);
  // dw = dy^T . x, fp32 accumulation. dw f32, bf16 or act [rows, in], dy act [N, rows] (may be
  // strided: columns of a wider gradient), x act [N, in]. The order of summation depends on
  // shapes only, never on threads.
  void linear_wgrad(Tensor dw, Tensor dy, Tensor x, const GradWrite& write);
  // linear_wgrad, and parts f64 [any], whose sum is that of the squares of what was written, from
  // fp32 (elements beyond 2^63 may make it infinite). Only where a backend has both at once: false
  // means that nothing was done.
  bool linear_wgrad_squares(Tensor dw, Tensor parts, Tensor dy, Tensor x, const GradWrite& write);
  // dx = base + gradient through rms_norm, dw = sum over rows. x, dx act as in rms_norm, dy act or
  // stat of the same shape, rstd as the forward wrote it, base act or empty (0), dw stat [last] or
  // empty (not wanted). dx may alias dy or base; all may be strided.
  void rms_norm_back(Tensor dx, Tensor dw, Tensor dy, Tensor x, Tensor rstd, Tensor w, Tensor base,
                     Accumulate accumulate_dw);
  // Gradient of norm_rope; x is its input. dx may alias dy. Fused: default is rope, rms_norm_back.
  void norm_rope_back(Tensor dx, Tensor dw, Tensor dy, Tensor x, Tensor rstd, Tensor w,
                      Tensor table, Accumulate accumulate_dw);
  // The gradient of a bias: db = the sum over rows of dy. dy act [N, width] (may be strided), db
  // stat [width]. The order of summation depends on shapes only.
  void bias_back(Tensor db, Tensor dy, Accumulate accumulate);
  // Gradient of attention over the batch's own keys (every sequence has q_begin == kv_begin and
  // q_len == kv_len). dq, dout, out, q act [N, Hq, D]; dk, dv act [N, Hkv, D]; dq, dk, dv may be
  // strided; lse as the forward wrote it.
  void attention_back(Tensor dq, Tensor dk, Tensor dv, Tensor dout, Tensor out, Tensor lse,
                      Tensor q, KvView kv, Tensor sequences);
  // dgate, dup may alias gate, up; dout may alias neither.
  void swiglu_back(Tensor dgate, Tensor dup, Tensor dout, Tensor gate, Tensor up);
  // dtable[id] = sum of the rows of dx whose id it is (in the order of `order`, in fp32, then
  // written once). dtable f32, bf16 or act [V, C], dx act [N, C], ids i32 [N], order i32 [N]: row
  // numbers sorted by id, stably. Rows of absent ids become 0, or stay with Accumulate::yes.
  void embed_back(Tensor dtable, Tensor dx, Tensor ids, Tensor order, const GradWrite& write);
  // The gradient of gather_rows: out[rows[i]] = x[i], every other row 0. rows are distinct.
  void scatter_rows(Tensor out, Tensor x, Tensor rows);

  // --- Optimizer ---
  // out f64 [1] = sum of x^2 in double, in an order that depends on x's size only. x contiguous
  // f32, bf16 (or act); a NaN or an infinity makes the result one.
  void sum_squares(Tensor out, Tensor x);
  // The same of many: out f64 [x.size()].
  void sums_of_squares(Tensor out, std::span<const Tensor> x);
  // AdamW updates (optim/adamw.h) of different parameters or ranges, in any order; on a GPU many
  // small ones cost what a large one does. Each is of elements [begin, begin + count) of a
  // parameter, begin a multiple of kMomentBlock; any division into such ranges gives the same bits.
  // master f32 or bf16 (stochastically rounded), grad f32 or bf16, both contiguous and of one size;
  // m, v u8 [moment_bytes(format, numel)]; all four may be elements step.first.. of a parameter of
  // which the rest is elsewhere. NVFP4 blocks of `requantize` in which an element of the
  // master changed are made anew from it; the others keep their codes. Master and moments in
  // Place::host: an update may go on beside later ops, which must not write its grad or read what
  // it writes before await_updates.
  void adamw_steps(std::span<const AdamwUpdate> updates);
  // One of them.
  void adamw_step(Tensor master, Tensor grad, Tensor m, Tensor v, MomentFormat format,
                  int64_t begin, int64_t count, const AdamwStep& step,
                  const Requantize& requantize) {
    const AdamwUpdate one{master, grad, m, v, format, begin, count, step, requantize};
    adamw_steps({&one, 1});
  }

  // A number for all updates so far; later ops, and sync, wait for those up to such a number. At
  // most two marks are waited for later.
  uint64_t mark_updates() { return do_mark_updates(); }
  void await_updates(uint64_t mark) { do_await_updates(mark); }

  // Names an intermediate of the wiring; does nothing except on a recording backend. layer is -1
  // outside the blocks.
  void note(std::string_view name, int64_t layer, Tensor value) { do_note(name, layer, value); }

 protected:
  // For fused defaults and decorators.
  virtual bool do_linear_wgrad_squares(Tensor, Tensor, Tensor, Tensor, const GradWrite&) {
    return false;
  }
  virtual void do_sums_of_squares(Tensor out, std::span<const Tensor> x);
  virtual void do_adamw_steps(std::span<const AdamwUpdate> updates);
  virtual void do_add_rms_norm(Tensor out, Tensor rstd, Tensor sum, Tensor a, Tensor b, Tensor w,
                               double eps);
  virtual void do_norm_rope(Tensor out, Tensor rstd, Tensor x, Tensor w, Tensor table, double eps);
  virtual void do_split_heads(const HeadSlots& out, KvView kv, Tensor qkv, const HeadParams& params,
                              Tensor table, Tensor slots, double eps);
  virtual void do_split_heads_attention(Tensor out, Tensor lse, const HeadSlots& heads, KvView kv,
                                        Tensor qkv, const HeadParams& params, Tensor table,
                                        Tensor slots, Tensor sequences, double eps);
  virtual void do_linear_swiglu(Tensor act, Tensor gate_up, Tensor x, const LinearWeight& w,
                                Activations activations);
  virtual void do_decode_step(const DecodePlan&, const std::function<void()>& plain) { plain(); }
  virtual DecodeWay do_decode_way(const DecodePlan&) const { return {}; }
  virtual void do_repeat(std::unique_ptr<Recording>&, const std::function<void()>& ops) { ops(); }
  virtual void do_norm_rope_back(Tensor dx, Tensor dw, Tensor dy, Tensor x, Tensor rstd, Tensor w,
                                 Tensor table, Accumulate accumulate_dw);

 private:
  void check_weight(const char* op, const LinearWeight& w) const;
  void check_plan(const DecodePlan& plan) const;

  virtual Buffer do_allocate(size_t n_bytes, std::string_view what) = 0;
  virtual Buffer do_allocate_host(size_t n_bytes, std::string_view what) {
    return do_allocate(n_bytes, what);
  }
  virtual std::unique_ptr<ReservedPages> do_reserve(size_t n_bytes, std::string_view what);
  virtual uint64_t do_mark_updates() { return 0; }
  virtual void do_await_updates(uint64_t /*mark*/) {}
  virtual void do_upload(Tensor dst, const void* host) = 0;
  virtual void do_download(void* host, Tensor src) = 0;
  virtual void do_copy(Tensor dst, Tensor src) = 0;
  virtual void do_sync() = 0;
  virtual size_t do_packed_bytes(int64_t out, int64_t in) const = 0;
  virtual void do_pack_rows(const LinearWeight& w, int64_t row_begin, int64_t rows,
                            const uint8_t* codes, const uint8_t* scales) = 0;
  virtual void do_unpack_rows(const LinearWeight& w, int64_t row_begin, int64_t rows,
                              uint8_t* codes, uint8_t* scales) const = 0;
  virtual void do_quantize_rows(const LinearWeight& w, int64_t row_begin, Tensor src,
                                ScaleRule rule) = 0;
  virtual void do_embed(Tensor out, Tensor table, Tensor ids) = 0;
  virtual void do_rms_norm(Tensor out, Tensor rstd, Tensor x, Tensor w, double eps) = 0;
  virtual void do_rope_table(Tensor table, Tensor positions,
                             const RopeFrequencies& frequencies) = 0;
  virtual void do_rope(Tensor out, Tensor x, Tensor table, Rotation rotation) = 0;
  virtual void do_add_bias(Tensor out, Tensor x, Tensor bias) = 0;
  virtual void do_bias_rope(Tensor out, Tensor x, Tensor bias, Tensor table, StillPairs still) = 0;
  virtual void do_kv_append(KvView kv, Tensor k, Tensor v, Tensor slots) = 0;
  virtual void do_attention(Tensor out, Tensor lse, Tensor q, KvView kv, Tensor sequences) = 0;
  virtual void do_swiglu(Tensor out, Tensor gate, Tensor up) = 0;
  virtual void do_add(Tensor out, Tensor a, Tensor b) = 0;
  virtual void do_gather_rows(Tensor out, Tensor x, Tensor rows) = 0;
  virtual void do_sample(Tensor out, Tensor logits, Tensor rows, Tensor context, Choice choice) = 0;
  virtual void do_linear(Tensor out, Tensor x, const LinearWeight& w, Activations activations) = 0;
  virtual void do_softmax_stats(Tensor stats, Tensor logits, Tensor targets, int64_t v_begin,
                                Accumulate accumulate) = 0;
  virtual void do_cross_entropy(Tensor loss, Tensor stats, Tensor targets) = 0;
  virtual void do_cross_entropy_back(Tensor dlogits, Tensor logits, Tensor stats, Tensor targets,
                                     int64_t v_begin, double scale) = 0;
  virtual void do_divergence(Tensor loss, Tensor dlogits, Tensor logits, Tensor stats,
                             Tensor teacher, Tensor teacher_stats, double scale,
                             Accumulate accumulate) = 0;
  virtual void do_l1_loss(Tensor loss, Tensor dh, Tensor h, Tensor table, Tensor targets,
                          double scale) = 0;
  virtual void do_linear_dgrad(Tensor dx, Tensor dy, const LinearWeight& w,
                               Accumulate accumulate) = 0;
  virtual void do_linear_wgrad(Tensor dw, Tensor dy, Tensor x, const GradWrite& write) = 0;
  virtual void do_rms_norm_back(Tensor dx, Tensor dw, Tensor dy, Tensor x, Tensor rstd, Tensor w,
                                Tensor base, Accumulate accumulate_dw) = 0;
  virtual void do_bias_back(Tensor db, Tensor dy, Accumulate accumulate) = 0;
  virtual void do_attention_back(Tensor dq, Tensor dk, Tensor dv, Tensor dout, Tensor out,
                                 Tensor lse, Tensor q, KvView kv, Tensor sequences) = 0;
  virtual void do_swiglu_back(Tensor dgate, Tensor dup, Tensor dout, Tensor gate, Tensor up) = 0;
  virtual void do_embed_back(Tensor dtable, Tensor dx, Tensor ids, Tensor order,
                             const GradWrite& write) = 0;
  virtual void do_scatter_rows(Tensor out, Tensor x, Tensor rows) = 0;
  virtual void do_sum_squares(Tensor out, Tensor x) = 0;
  virtual void do_adamw_step(Tensor master, Tensor grad, Tensor m, Tensor v, MomentFormat format,
                             int64_t begin, int64_t count, const AdamwStep& step,
                             const Requantize& requantize) = 0;
  virtual void do_note(std::string_view, int64_t, Tensor) {}
};

}  // namespace nibble
