// SPDX-License-Identifier: MIT
// Validation of the op set: shapes and types, once, for every backend.
#include "backend/backend.h"

#include "core/memory_info.h"

namespace nibble {
namespace {

// Everything the caller could get wrong is an InternalError that names the op and its arguments.
template <class... Args>
void require(bool ok, const char* op, const char* what, const Args&... args) {
  if (ok) return;
  std::string message = fmt::format("op {}: {}", op, what);
  ((message += " " + args.describe()), ...);
  throw InternalError(message);
}

bool is_act(const Tensor& t) {
  return t.dtype == DType::f32 || t.dtype == DType::bf16 || t.dtype == DType::f16 ||
         t.dtype == DType::f64 || t.dtype == DType::c128;
}
// Statistics, norm weights and tables: f32, or the reference backend's own type.
bool is_stat(const Tensor& t, const Tensor& act) {
  return t.dtype == DType::f32 || t.dtype == act.dtype;
}
// Gradients of weights: as stored by the optimizer, or the reference backend's own type.
bool is_grad(const Tensor& t, const Tensor& act) {
  return t.dtype == DType::f32 || t.dtype == DType::bf16 || t.dtype == act.dtype;
}
// Of softmax_stats: one row of three per row of logits.
bool is_stats(const Tensor& t, const Tensor& logits) {
  return t.rank == 2 && t.dim(0) == logits.dim(0) && t.dim(1) == 3 && t.contiguous() &&
         is_stat(t, logits);
}
bool is_ids(const Tensor& t, int64_t n) {
  return t.dtype == DType::i32 && t.rank == 1 && t.dim(0) == n && t.contiguous();
}

void check_update(const AdamwUpdate& u) {
  const Tensor &master = u.master, &grad = u.grad;
  const Requantize& rq = u.requantize;
  const int64_t n = master.numel();
  require(master.dtype == DType::f32 || master.dtype == DType::bf16 || master.dtype == DType::f64,
          "adamw_step", "type of", master);
  require(grad.numel() == n && is_grad(grad, master) && master.contiguous() && grad.contiguous(),
          "adamw_step", "shapes", master, grad);
  require(u.m.dtype == DType::u8 && u.v.dtype == DType::u8 &&
              u.m.bytes() == moment_bytes(u.format, n) && u.v.bytes() == u.m.bytes(),
          "adamw_step", "moments", u.m, u.v, master);
  require(u.begin >= 0 && u.count >= 0 && u.begin + u.count <= n && u.begin % kMomentBlock == 0 &&
              ((u.begin + u.count) % kMomentBlock == 0 || u.begin + u.count == n),
          "adamw_step", "the range must consist of whole blocks of", master);
  require(u.step.first >= 0 && u.step.first % kMomentBlock == 0, "adamw_step",
          "a part must begin with a whole block:", master);
  require(!rq.weight || (rq.weight->is_packed() && rq.weight->in % kNvfp4Block == 0 &&
                         n % kNvfp4Block == 0 && rq.row_offset >= 0 &&
                         u.step.first + n <= (rq.weight->out - rq.row_offset) * rq.weight->in),
          "adamw_step", "packed copy of", master);
  require(u.step.from == UpdateFrom::master || rq.weight, "adamw_step",
          "an update from the packed copy needs one:", master);
}

}  // namespace

static void check_available(size_t n_bytes, uint64_t available, std::string_view what,
                            const std::string& whose) {
  if (n_bytes <= available) return;
  throw_device("{} need {} of memory, but {} has only {} available", what, format_bytes(n_bytes),
               whose, format_bytes(available));
}

Buffer Backend::allocate(size_t n_bytes, std::string_view what, Place place) {
  const bool on_host = place == Place::host;
  check_available(n_bytes, on_host ? available_host_memory() : available_memory(), what,
                  on_host ? "the machine" : name());
  return on_host ? do_allocate_host(n_bytes, what) : do_allocate(n_bytes, what);
}

std::unique_ptr<ReservedPages> Backend::reserve(size_t n_bytes, size_t used,
                                                std::string_view what) {
  check_available(used, available_memory(), what, name());
  return do_reserve(n_bytes, what);
}
std::unique_ptr<ReservedPages> Backend::do_reserve(size_t, std::string_view what) {
  throw_internal("{}: {} does not reserve addresses", what, name());
}

void Backend::upload(Tensor dst, const void* host) {
  require(dst && dst.contiguous(), "upload", "needs a contiguous tensor", dst);
  do_upload(dst, host);
}

void Backend::download(void* host, Tensor src) {
  require(src && src.contiguous(), "download", "needs a contiguous tensor", src);
  do_download(host, src);
}

void Backend::copy(Tensor dst, Tensor src) {
  require(dst.dtype == src.dtype && same_shape(dst, src), "copy", "differs:", dst, src);
  do_copy(dst, src);
}

void Backend::pack_rows(const LinearWeight& w, int64_t row_begin, int64_t rows,
                        std::span<const uint8_t> codes, std::span<const uint8_t> scales) {
  require(w.is_packed() && w.in % 16 == 0 && row_begin >= 0 && rows >= 0 &&
              row_begin + rows <= w.out && codes.size() == size_t(rows * w.in / 2) &&
              scales.size() == size_t(rows * w.in / 16),
          "pack_rows", "sizes", w.packed);
  do_pack_rows(w, row_begin, rows, codes.data(), scales.data());
}

void Backend::unpack_rows(const LinearWeight& w, int64_t row_begin, int64_t rows,
                          std::span<uint8_t> codes, std::span<uint8_t> scales) const {
  require(w.is_packed() && row_begin >= 0 && rows >= 0 && row_begin + rows <= w.out &&
              codes.size() == size_t(rows * w.in / 2) && scales.size() == size_t(rows * w.in / 16),
          "unpack_rows", "sizes", w.packed);
  do_unpack_rows(w, row_begin, rows, codes.data(), scales.data());
}

void Backend::quantize_rows(const LinearWeight& w, int64_t row_begin, Tensor src, ScaleRule rule) {
  require(w.is_packed() && w.in % 16 == 0 && src.rank == 2 && src.dim(1) == w.in && is_act(src) &&
              src.contiguous() && row_begin >= 0 && row_begin + src.dim(0) <= w.out,
          "quantize_rows", "sizes", w.packed, src);
  do_quantize_rows(w, row_begin, src, rule);
}

LinearWeight Backend::rows_of(const LinearWeight& w, int64_t row_begin, int64_t rows) const {
  require(row_begin % kRowPanel == 0 && row_begin >= 0 && rows >= 0 && row_begin + rows <= w.out,
          "rows_of", "rows of", w.is_packed() ? w.packed : w.dense);
  LinearWeight part;
  part.out = rows;
  part.in = w.in;
  if (w.dense) part.dense = w.dense.slice(row_begin, rows);
  if (w.packed) {
    part.packed =
        w.packed.slice(int64_t(packed_bytes(row_begin, w.in)), int64_t(packed_bytes(rows, w.in)));
  }
  if (w.row_scale) part.row_scale = w.row_scale.slice(row_begin, rows);
  return part;
}

void Backend::embed(Tensor out, Tensor table, Tensor ids) {
  require(is_act(out) && out.rank == 2 && table.rank == 2 && out.dim(1) == table.dim(1) &&
              is_ids(ids, out.dim(0)) && table.contiguous(),
          "embed", "shapes", out, table, ids);
  do_embed(out, table, ids);
}

void Backend::rms_norm(Tensor out, Tensor rstd, Tensor x, Tensor w, double eps) {
  require(is_act(x) && out.dtype == x.dtype && same_shape(out, x) && x.rank >= 2, "rms_norm",
          "shapes", out, x);
  require(w.rank == 1 && w.dim(0) == x.cols() && is_stat(w, x), "rms_norm", "weight", w, x);
  require(!rstd || (rstd.numel() == x.rows() && is_stat(rstd, x) && rstd.contiguous()), "rms_norm",
          "rstd", rstd, x);
  do_rms_norm(out, rstd, x, w, eps);
}

void Backend::add_rms_norm(Tensor out, Tensor rstd, Tensor sum, Tensor a, Tensor b, Tensor w,
                           double eps) {
  require(is_act(a) && a.rank == 2 && same_shape(a, b) && same_shape(a, sum) &&
              same_shape(a, out) && a.dtype == b.dtype && a.dtype == sum.dtype &&
              a.dtype == out.dtype,
          "add_rms_norm", "shapes", out, sum, a, b);
  require(w.rank == 1 && w.dim(0) == a.cols() && is_stat(w, a), "add_rms_norm", "weight", w, a);
  require(!rstd || (rstd.numel() == a.rows() && is_stat(rstd, a)), "add_rms_norm", "rstd", rstd, a);
  do_add_rms_norm(out, rstd, sum, a, b, w, eps);
}

void Backend::do_add_rms_norm(Tensor out, Tensor rstd, Tensor sum, Tensor a, Tensor b, Tensor w,
                              double eps) {
  add(sum, a, b);
  rms_norm(out, rstd, sum, w, eps);
}

void Backend::rope_table(Tensor table, Tensor positions, const RopeFrequencies& f) {
  require(table.rank == 2 && table.dim(1) == 2 * int64_t(f.turns.size()) &&
              is_ids(positions, table.dim(0)) && is_act(table) && table.contiguous(),
          "rope_table", "shapes", table, positions);
  do_rope_table(table, positions, f);
}

void Backend::rope(Tensor out, Tensor x, Tensor table, Rotation rotation) {
  require(is_act(x) && x.rank == 3 && out.dtype == x.dtype && same_shape(out, x) &&
              table.rank == 2 && table.dim(0) == x.dim(0) && table.dim(1) == x.dim(2) &&
              is_stat(table, x),
          "rope", "shapes", out, x, table);
  do_rope(out, x, table, rotation);
}

void Backend::norm_rope(Tensor out, Tensor rstd, Tensor x, Tensor w, Tensor table, double eps) {
  require(is_act(x) && x.rank == 3 && out.dtype == x.dtype && same_shape(out, x) && w.rank == 1 &&
              w.dim(0) == x.dim(2) && table.rank == 2 && table.dim(0) == x.dim(0) &&
              table.dim(1) == x.dim(2) && is_stat(w, x) && is_stat(table, x),
          "norm_rope", "shapes", out, x, w, table);
  require(!rstd || (rstd.numel() == x.rows() && is_stat(rstd, x)), "norm_rope", "rstd", rstd, x);
  do_norm_rope(out, rstd, x, w, table, eps);
}

void Backend::do_norm_rope(Tensor out, Tensor rstd, Tensor x, Tensor w, Tensor table, double eps) {
  rms_norm(out, rstd, x, w, eps);
  rope(out, out, table, Rotation::forward);
}

// Vectors that belong to heads.
static bool is_bias(const Tensor& bias, int64_t width, const Tensor& act) {
  return bias.rank == 1 && bias.dim(0) == width && bias.contiguous() && is_stat(bias, act);
}

void Backend::add_bias(Tensor out, Tensor x, Tensor bias) {
  require(is_act(x) && x.rank == 3 && out.dtype == x.dtype && same_shape(out, x) &&
              is_bias(bias, x.inner(), x),
          "add_bias", "shapes", out, x, bias);
  do_add_bias(out, x, bias);
}

void Backend::bias_rope(Tensor out, Tensor x, Tensor bias, Tensor table, StillPairs still) {
  require(is_act(x) && x.rank == 3 && out.dtype == x.dtype && same_shape(out, x) &&
              table.rank == 2 && table.dim(0) == x.dim(0) && table.dim(1) == x.dim(2) &&
              is_stat(table, x) && is_bias(bias, x.inner(), x) && still.begin >= 0,
          "bias_rope", "shapes", out, x, bias, table);
  do_bias_rope(out, x, bias, table, still);
}

void Backend::kv_append(KvView kv, Tensor k, Tensor v, Tensor slots) {
  require(
      is_act(k) && k.rank == 3 && same_shape(k, v) && k.dtype == v.dtype && is_ids(slots, k.dim(0)),
      "kv_append", "shapes", k, v, slots);
  require(kv.k.rank == 3 && same_shape(kv.k, kv.v) && kv.k.dtype == kv.v.dtype &&
              kv.k.dim(1) == k.dim(1) && kv.k.dim(2) == k.dim(2),
          "kv_append", "view", kv.k, kv.v, k);
  do_kv_append(kv, k, v, slots);
}

static void check_head_params(const char* op, const HeadParams& p, int64_t q_heads,
                              int64_t kv_heads, int64_t d, const Tensor& act) {
  const bool norms = bool(p.q_norm) || bool(p.k_norm);
  require(!norms || (p.q_norm.rank == 1 && p.q_norm.dim(0) == d && same_shape(p.q_norm, p.k_norm) &&
                     is_stat(p.q_norm, act) && is_stat(p.k_norm, act)),
          op, "norms of heads", p.q_norm, p.k_norm);
  require(!p.bias ||
              (!norms && is_bias(p.bias, (q_heads + 2 * kv_heads) * d, act) && p.still.begin >= 0),
          op, "a bias of heads, without norms:", p.bias, p.q_norm);
}

static void check_split_heads(const HeadSlots& out, KvView kv, Tensor qkv, const HeadParams& params,
                              Tensor table, Tensor slots) {
  const Tensor &q = out.q, &k = out.k;
  require(is_act(qkv) && qkv.rank == 2 && q.rank == 3 && k.rank == 3 && q.dtype == qkv.dtype &&
              k.dtype == qkv.dtype && q.contiguous() && k.contiguous() && q.dim(0) == qkv.dim(0) &&
              k.dim(0) == qkv.dim(0) && q.dim(2) == k.dim(2) &&
              qkv.dim(1) == (q.dim(1) + 2 * k.dim(1)) * q.dim(2),
          "split_heads", "shapes", q, k, qkv);
  check_head_params("split_heads", params, q.dim(1), k.dim(1), q.dim(2), qkv);
  require(table.rank == 2 && table.dim(0) == q.dim(0) && table.dim(1) == q.dim(2) &&
              is_stat(table, qkv),
          "split_heads", "table", table, qkv);
  require(params.q_norm || (!out.q_rstd && !out.k_rstd), "split_heads",
          "heads without norms have no rstd:", out.q_rstd, out.k_rstd);
  require((!out.q_rstd || (out.q_rstd.numel() == q.rows() && is_stat(out.q_rstd, qkv))) &&
              (!out.k_rstd || (out.k_rstd.numel() == k.rows() && is_stat(out.k_rstd, qkv))),
          "split_heads", "rstd", out.q_rstd, out.k_rstd);
  require(kv.k.rank == 3 && same_shape(kv.k, kv.v) && kv.k.dtype == kv.v.dtype &&
              kv.k.dim(1) == k.dim(1) && kv.k.dim(2) == k.dim(2) && is_ids(slots, q.dim(0)),
          "split_heads", "view", kv.k, kv.v, slots);
}

void Backend::split_heads(const HeadSlots& out, KvView kv, Tensor qkv, const HeadParams& params,
                          Tensor table, Tensor slots, double eps) {
  check_split_heads(out, kv, qkv, params, table, slots);
  do_split_heads(out, kv, qkv, params, table, slots, eps);
}

void Backend::do_split_heads(const HeadSlots& out, KvView kv, Tensor qkv, const HeadParams& params,
                             Tensor table, Tensor slots, double eps) {
  const int64_t n = qkv.dim(0), d = out.q.dim(2), hq = out.q.dim(1), hkv = out.k.dim(1);
  const auto heads = [&](int64_t begin, int64_t count) {
    return qkv.columns(begin * d, count * d).split_inner({n, count, d});
  };
  const Tensor q = heads(0, hq), k = heads(hq, hkv), v = heads(hq + hkv, hkv);
  if (params.q_norm) {
    norm_rope(out.q, out.q_rstd, q, params.q_norm, table, eps);
    norm_rope(out.k, out.k_rstd, k, params.k_norm, table, eps);
  } else if (params.bias) {
    bias_rope(out.q, q, params.bias.slice(0, hq * d), table, {});
    bias_rope(out.k, k, params.bias.slice(hq * d, hkv * d), table, params.still);
    add_bias(v, v, params.bias.slice((hq + hkv) * d, hkv * d));
  } else {
    rope(out.q, q, table, Rotation::forward);
    rope(out.k, k, table, Rotation::forward);
  }
  kv_append(kv, out.k, v, slots);
}

static void check_attention(Tensor out, Tensor lse, Tensor q, KvView kv, Tensor sequences) {
  require(is_act(q) && q.rank == 3 && out.dtype == q.dtype && same_shape(out, q), "attention",
          "shapes", out, q);
  require(kv.k.rank == 3 && same_shape(kv.k, kv.v) && kv.k.dtype == kv.v.dtype &&
              kv.k.dim(2) == q.dim(2) && kv.k.dim(1) > 0 && q.dim(1) % kv.k.dim(1) == 0,
          "attention", "heads", q, kv.k, kv.v);
  require(sequences.dtype == DType::i32 && sequences.rank == 2 && sequences.dim(1) == 4,
          "attention", "sequences", sequences);
  require(!lse || (lse.rank == 2 && lse.dim(0) == q.dim(0) && lse.dim(1) == q.dim(1) &&
                   is_stat(lse, q)),
          "attention", "lse", lse, q);
}

void Backend::attention(Tensor out, Tensor lse, Tensor q, KvView kv, Tensor sequences) {
  check_attention(out, lse, q, kv, sequences);
  do_attention(out, lse, q, kv, sequences);
}

void Backend::split_heads_attention(Tensor out, Tensor lse, const HeadSlots& heads, KvView kv,
                                    Tensor qkv, const HeadParams& params, Tensor table,
                                    Tensor slots, Tensor sequences, double eps) {
  check_split_heads(heads, kv, qkv, params, table, slots);
  check_attention(out, lse, heads.q, kv, sequences);
  do_split_heads_attention(out, lse, heads, kv, qkv, params, table, slots, sequences, eps);
}

void Backend::do_split_heads_attention(Tensor out, Tensor lse, const HeadSlots& heads, KvView kv,
                                       Tensor qkv, const HeadParams& params, Tensor table,
                                       Tensor slots, Tensor sequences, double eps) {
  split_heads(heads, kv, qkv, params, table, slots, eps);
  attention(out, lse, heads.q, kv, sequences);
}

void Backend::swiglu(Tensor out, Tensor gate, Tensor up) {
  require(is_act(out) && out.rank == 2 && same_shape(out, gate) && same_shape(out, up) &&
              out.dtype == gate.dtype && out.dtype == up.dtype,
          "swiglu", "shapes", out, gate, up);
  do_swiglu(out, gate, up);
}

void Backend::add(Tensor out, Tensor a, Tensor b) {
  require(is_act(out) && same_shape(out, a) && same_shape(out, b) && out.dtype == a.dtype &&
              out.dtype == b.dtype,
          "add", "shapes", out, a, b);
  do_add(out, a, b);
}

void Backend::gather_rows(Tensor out, Tensor x, Tensor rows) {
  require(is_act(x) && x.rank == 2 && out.rank == 2 && out.dtype == x.dtype &&
              out.dim(1) == x.dim(1) && is_ids(rows, out.dim(0)),
          "gather_rows", "shapes", out, x, rows);
  do_gather_rows(out, x, rows);
}

void Backend::sample(Tensor out, Tensor logits, Tensor rows, Tensor context, Choice choice) {
  require(is_act(logits) && logits.rank == 2 && logits.dim(1) > 0 &&
              logits.dim(1) <= kSampleVocabulary && is_ids(out, logits.dim(0)),
          "sample", "shapes", out, logits);
  require(rows.dtype == DType::i32 && rows.rank == 2 && rows.dim(0) == logits.dim(0) &&
              rows.dim(1) == int64_t(sizeof(SampleRow) / sizeof(int32_t)) && rows.contiguous() &&
              reinterpret_cast<uintptr_t>(rows.data) % alignof(SampleRow) == 0,
          "sample", "rows", rows, logits);
  require(!context || is_ids(context, context.dim(0)), "sample", "context", context);
  do_sample(out, logits, rows, context, choice);
}

void Backend::check_weight(const char* op, const LinearWeight& w) const {
  require(bool(w.dense) != bool(w.packed), op, "a weight is dense or packed, one of them", w.dense,
          w.packed);
  require(!w.dense || (w.dense.rank == 2 && w.dense.dim(0) == w.out && w.dense.dim(1) == w.in &&
                       w.dense.contiguous()),
          op, "dense weight", w.dense);
  require(
      !w.packed || (w.packed.dtype == DType::u8 && w.packed.bytes() == packed_bytes(w.out, w.in)),
      op, "packed weight", w.packed);
  require(!w.row_scale || (w.row_scale.dtype == DType::f32 && w.row_scale.rank == 1 &&
                           w.row_scale.dim(0) == w.out),
          op, "row scale", w.row_scale);
}

void Backend::linear(Tensor out, Tensor x, const LinearWeight& w, Activations activations) {
  require(is_act(x) && x.rank == 2 && out.rank == 2 && out.dim(0) == x.dim(0) && x.dim(1) == w.in &&
              out.dim(1) == w.out && is_stat(out, x),
          "linear", "shapes", out, x, w.is_packed() ? w.packed : w.dense);
  check_weight("linear", w);
  require(activations != Activations::int8 || w.is_packed(), "linear",
          "int8 activations need a packed weight, got", w.dense);
  require(activations != Activations::nvfp4 || w.in % 16 == 0, "linear",
          "W4A4 needs in % 16 == 0:", x);
  do_linear(out, x, w, activations);
}

void Backend::linear_swiglu(Tensor act, Tensor gate_up, Tensor x, const LinearWeight& w,
                            Activations activations) {
  require(act.rank == 2 && gate_up.rank == 2 && act.dtype == x.dtype && gate_up.dtype == x.dtype &&
              2 * act.dim(1) == gate_up.dim(1) && act.dim(0) == gate_up.dim(0),
          "linear_swiglu", "shapes", act, gate_up, x);
  do_linear_swiglu(act, gate_up, x, w, activations);
}

void Backend::do_linear_swiglu(Tensor act, Tensor gate_up, Tensor x, const LinearWeight& w,
                               Activations activations) {
  const int64_t width = act.dim(1);
  linear(gate_up, x, w, activations);
  swiglu(act, gate_up.columns(0, width), gate_up.columns(width, width));
}

void Backend::check_plan(const DecodePlan& plan) const {
  const auto weight = [&](const LinearWeight& w, int64_t out, int64_t in) {
    check_weight("decode_step", w);
    require(w.out == out && w.in == in, "decode_step", "weight of", w.dense, w.packed);
  };
  const Tensor& x = plan.x;
  const int64_t n = x.dim(0), c = x.dim(1), d = plan.head_width;
  const int64_t q = plan.q_heads * d, kv = plan.kv_heads * d;
  const auto norm = [&](const Tensor& w, int64_t width) {
    require(w.rank == 1 && w.dim(0) == width && is_stat(w, x), "decode_step", "norm", w, x);
  };
  require(is_act(x) && x.rank == 2 && x.contiguous() && is_ids(plan.ids, n) &&
              is_ids(plan.positions, n) && is_ids(plan.slots, n),
          "decode_step", "tokens", x, plan.ids, plan.positions, plan.slots);
  require(plan.sequences.dtype == DType::i32 && plan.sequences.rank == 2 &&
              plan.sequences.dim(0) == n && plan.sequences.dim(1) == 4,
          "decode_step", "one new token a sequence:", plan.sequences, x);
  require(plan.embed.rank == 2 && plan.embed.dim(1) == c, "decode_step", "embedding", plan.embed);
  require(plan.rope.rank == 2 && plan.rope.dim(0) == n && plan.rope.dim(1) == d &&
              is_stat(plan.rope, x) && d == 2 * int64_t(plan.frequencies.turns.size()) &&
              plan.logits.rank == 2 && plan.logits.dim(0) == n,
          "decode_step", "table and logits", plan.rope, plan.logits);
  require(!plan.layers.empty() && plan.kv_heads > 0 && plan.q_heads % plan.kv_heads == 0,
          "decode_step", "layers and heads of", x);
  for (const DecodeLayer& l : plan.layers) {
    norm(l.attn_norm, c), norm(l.ffn_norm, c);
    check_head_params("decode_step", l.heads, plan.q_heads, plan.kv_heads, d, x);
    weight(l.qkv, q + 2 * kv, c), weight(l.attn_out, c, q);
    weight(l.gate_up, 2 * l.down.in, c), weight(l.down, c, l.down.in);
    require(l.kv.k.rank == 3 && same_shape(l.kv.k, l.kv.v) && l.kv.k.dtype == l.kv.v.dtype &&
                l.kv.k.dim(1) == plan.kv_heads && l.kv.k.dim(2) == d,
            "decode_step", "cache", l.kv.k, l.kv.v);
  }
  norm(plan.final_norm, c);
  weight(plan.head, plan.logits.dim(1), c);
}

void Backend::decode_step(const DecodePlan& plan, const std::function<void()>& plain) {
  check_plan(plan);
  do_decode_step(plan, plain);
}

DecodeWay Backend::decode_way(const DecodePlan& plan) const {
  check_plan(plan);
  return do_decode_way(plan);
}

void Backend::softmax_stats(Tensor stats, Tensor logits, Tensor targets, int64_t v_begin,
                            Accumulate accumulate) {
  require(is_act(logits) && logits.rank == 2 && logits.dim(1) > 0 && v_begin >= 0 &&
              is_stats(stats, logits) && is_ids(targets, logits.dim(0)),
          "softmax_stats", "shapes", stats, logits, targets);
  do_softmax_stats(stats, logits, targets, v_begin, accumulate);
}

void Backend::cross_entropy(Tensor loss, Tensor stats, Tensor targets) {
  require(is_act(stats) && stats.rank == 2 && stats.dim(1) == 3 && stats.contiguous() &&
              loss.rank == 1 && loss.dim(0) == stats.dim(0) && loss.dtype == stats.dtype &&
              is_ids(targets, stats.dim(0)),
          "cross_entropy", "shapes", loss, stats, targets);
  do_cross_entropy(loss, stats, targets);
}

void Backend::cross_entropy_back(Tensor dlogits, Tensor logits, Tensor stats, Tensor targets,
                                 int64_t v_begin, double scale) {
  require(is_act(logits) && logits.rank == 2 && is_act(dlogits) && same_shape(dlogits, logits) &&
              v_begin >= 0 && is_stats(stats, logits) && is_ids(targets, logits.dim(0)) &&
              (!dlogits.data || dlogits.data != logits.data || dlogits.dtype == logits.dtype),
          "cross_entropy_back", "shapes", dlogits, logits, stats, targets);
  do_cross_entropy_back(dlogits, logits, stats, targets, v_begin, scale);
}

void Backend::divergence(Tensor loss, Tensor dlogits, Tensor logits, Tensor stats, Tensor teacher,
                         Tensor teacher_stats, double scale, Accumulate accumulate) {
  require(is_act(logits) && logits.rank == 2 && logits.dim(1) > 0 && same_shape(teacher, logits) &&
              teacher.dtype == logits.dtype && is_stats(stats, logits) &&
              is_stats(teacher_stats, logits) && teacher_stats.dtype == stats.dtype &&
              loss.rank == 1 && loss.dim(0) == logits.dim(0) && loss.dtype == stats.dtype,
          "divergence", "shapes", loss, logits, stats, teacher, teacher_stats);
  require(dlogits.rank == 0 ||
              (is_act(dlogits) && same_shape(dlogits, logits) &&
               (!dlogits.data || (dlogits.data != teacher.data &&
                                  (dlogits.data != logits.data || dlogits.dtype == logits.dtype)))),
          "divergence", "gradient", dlogits, logits, teacher);
  do_divergence(loss, dlogits, logits, stats, teacher, teacher_stats, scale, accumulate);
}

void Backend::l1_loss(Tensor loss, Tensor dh, Tensor h, Tensor table, Tensor targets,
                      double scale) {
  require(is_act(h) && h.rank == 2 && same_shape(dh, h) && is_stat(dh, h) && table.rank == 2 &&
              table.dim(1) == h.dim(1) && table.contiguous() && loss.rank == 1 &&
              loss.dim(0) == h.dim(0) && is_stat(loss, h) && is_ids(targets, h.dim(0)),
          "l1_loss", "shapes", loss, dh, h, table, targets);
  do_l1_loss(loss, dh, h, table, targets, scale);
}

void Backend::linear_dgrad(Tensor dx, Tensor dy, const LinearWeight& w, Accumulate accumulate) {
  require(is_act(dy) && dy.rank == 2 && dx.rank == 2 && dx.dim(0) == dy.dim(0) &&
              dy.dim(1) == w.out && dx.dim(1) == w.in && is_stat(dx, dy),
          "linear_dgrad", "shapes", dx, dy, w.is_packed() ? w.packed : w.dense);
  check_weight("linear_dgrad", w);
  do_linear_dgrad(dx, dy, w, accumulate);
}

static void check_wgrad(const Tensor& dw, const Tensor& dy, const Tensor& x) {
  require(is_act(dy) && dy.rank == 2 && x.rank == 2 && dy.dtype == x.dtype &&
              x.dim(0) == dy.dim(0) && dw.rank == 2 && dw.dim(0) == dy.dim(1) &&
              dw.dim(1) == x.dim(1) && dw.contiguous() && is_grad(dw, x),
          "linear_wgrad", "shapes", dw, dy, x);
}
void Backend::linear_wgrad(Tensor dw, Tensor dy, Tensor x, const GradWrite& write) {
  check_wgrad(dw, dy, x);
  do_linear_wgrad(dw, dy, x, write);
}
bool Backend::linear_wgrad_squares(Tensor dw, Tensor parts, Tensor dy, Tensor x,
                                   const GradWrite& write) {
  check_wgrad(dw, dy, x);
  require(parts.dtype == DType::f64 && parts.rank == 1 && parts.contiguous(),
          "linear_wgrad_squares", "parts", parts);
  return do_linear_wgrad_squares(dw, parts, dy, x, write);
}

void Backend::rms_norm_back(Tensor dx, Tensor dw, Tensor dy, Tensor x, Tensor rstd, Tensor w,
                            Tensor base, Accumulate accumulate_dw) {
  require(is_act(x) && x.rank >= 2 && same_shape(dx, x) && same_shape(dy, x) &&
              dx.dtype == x.dtype && is_stat(dy, x),
          "rms_norm_back", "shapes", dx, dy, x);
  require(w.rank == 1 && w.dim(0) == x.cols() && is_stat(w, x) && rstd.numel() == x.rows() &&
              is_stat(rstd, x) && rstd.contiguous(),
          "rms_norm_back", "weight and rstd", w, rstd, x);
  require(!dw || (dw.rank == 1 && dw.dim(0) == w.dim(0) && is_stat(dw, x)), "rms_norm_back", "dw",
          dw, w);
  require(!base || (same_shape(base, x) && base.dtype == x.dtype), "rms_norm_back", "base", base,
          x);
  do_rms_norm_back(dx, dw, dy, x, rstd, w, base, accumulate_dw);
}

void Backend::norm_rope_back(Tensor dx, Tensor dw, Tensor dy, Tensor x, Tensor rstd, Tensor w,
                             Tensor table, Accumulate accumulate_dw) {
  require(is_act(x) && x.rank == 3 && same_shape(dx, x) && same_shape(dy, x) &&
              dx.dtype == x.dtype && dy.dtype == x.dtype && w.rank == 1 && w.dim(0) == x.dim(2) &&
              is_stat(w, x) && table.rank == 2 && table.dim(0) == x.dim(0) &&
              table.dim(1) == x.dim(2) && is_stat(table, x) && rstd.numel() == x.rows() &&
              is_stat(rstd, x) && (!dw || (same_shape(dw, w) && is_stat(dw, x))),
          "norm_rope_back", "shapes", dx, dy, x, w, table);
  do_norm_rope_back(dx, dw, dy, x, rstd, w, table, accumulate_dw);
}

void Backend::do_norm_rope_back(Tensor dx, Tensor dw, Tensor dy, Tensor x, Tensor rstd, Tensor w,
                                Tensor table, Accumulate accumulate_dw) {
  rope(dx, dy, table, Rotation::backward);
  rms_norm_back(dx, dw, dx, x, rstd, w, Tensor{}, accumulate_dw);
}

void Backend::bias_back(Tensor db, Tensor dy, Accumulate accumulate) {
  require(is_act(dy) && dy.rank == 2 && is_bias(db, dy.dim(1), dy), "bias_back", "shapes", db, dy);
  do_bias_back(db, dy, accumulate);
}

void Backend::attention_back(Tensor dq, Tensor dk, Tensor dv, Tensor dout, Tensor out, Tensor lse,
                             Tensor q, KvView kv, Tensor sequences) {
  require(is_act(q) && q.rank == 3 && same_shape(dq, q) && same_shape(dout, q) &&
              same_shape(out, q) && dq.dtype == q.dtype && dout.dtype == q.dtype &&
              out.dtype == q.dtype,
          "attention_back", "shapes", dq, dout, out, q);
  require(kv.k.rank == 3 && same_shape(kv.k, kv.v) && kv.k.dtype == q.dtype &&
              kv.v.dtype == q.dtype && kv.k.dim(2) == q.dim(2) && kv.k.dim(1) > 0 &&
              q.dim(1) % kv.k.dim(1) == 0 && same_shape(dk, kv.k) && same_shape(dv, kv.v) &&
              dk.dtype == q.dtype && dv.dtype == q.dtype && kv.k.dim(0) == q.dim(0),
          "attention_back", "keys and values", dk, dv, kv.k, kv.v);
  require(sequences.dtype == DType::i32 && sequences.rank == 2 && sequences.dim(1) == 4 &&
              lse.rank == 2 && lse.dim(0) == q.dim(0) && lse.dim(1) == q.dim(1) && is_stat(lse, q),
          "attention_back", "sequences and lse", sequences, lse);
  do_attention_back(dq, dk, dv, dout, out, lse, q, kv, sequences);
}

void Backend::swiglu_back(Tensor dgate, Tensor dup, Tensor dout, Tensor gate, Tensor up) {
  require(is_act(dout) && dout.rank == 2 && same_shape(dgate, dout) && same_shape(dup, dout) &&
              same_shape(gate, dout) && same_shape(up, dout) && gate.dtype == dout.dtype &&
              up.dtype == dout.dtype && dgate.dtype == dout.dtype && dup.dtype == dout.dtype,
          "swiglu_back", "shapes", dgate, dup, dout, gate, up);
  do_swiglu_back(dgate, dup, dout, gate, up);
}

void Backend::embed_back(Tensor dtable, Tensor dx, Tensor ids, Tensor order,
                         const GradWrite& write) {
  require(is_act(dx) && dx.rank == 2 && dtable.rank == 2 && dtable.dim(1) == dx.dim(1) &&
              dtable.contiguous() && is_grad(dtable, dx) && is_ids(ids, dx.dim(0)) &&
              is_ids(order, dx.dim(0)),
          "embed_back", "shapes", dtable, dx, ids, order);
  do_embed_back(dtable, dx, ids, order, write);
}

void Backend::scatter_rows(Tensor out, Tensor x, Tensor rows) {
  require(is_act(x) && x.rank == 2 && out.rank == 2 && out.dtype == x.dtype &&
              out.dim(1) == x.dim(1) && is_ids(rows, x.dim(0)) && x.dim(0) <= out.dim(0),
          "scatter_rows", "shapes", out, x, rows);
  do_scatter_rows(out, x, rows);
}

void Backend::sum_squares(Tensor out, Tensor x) {
  require(out.dtype == DType::f64 && out.numel() == 1 && is_act(x) && x.contiguous(), "sum_squares",
          "shapes", out, x);
  do_sum_squares(out, x);
}

void Backend::sums_of_squares(Tensor out, std::span<const Tensor> x) {
  require(out.dtype == DType::f64 && out.rank == 1 && out.numel() == int64_t(x.size()) &&
              out.contiguous(),
          "sum_squares", "shapes", out);
  for (const Tensor& t : x) {
    require(is_act(t) && t.contiguous(), "sum_squares", "shapes", out, t);
  }
  if (!x.empty()) do_sums_of_squares(out, x);
}
void Backend::do_sums_of_squares(Tensor out, std::span<const Tensor> x) {
  for (size_t i = 0; i < x.size(); ++i) do_sum_squares(out.slice(int64_t(i), 1), x[i]);
}

void Backend::adamw_steps(std::span<const AdamwUpdate> updates) {
  for (const AdamwUpdate& u : updates) check_update(u);
  if (!updates.empty()) do_adamw_steps(updates);
}
void Backend::do_adamw_steps(std::span<const AdamwUpdate> updates) {
  for (const AdamwUpdate& u : updates) {
    do_adamw_step(u.master, u.grad, u.m, u.v, u.format, u.begin, u.count, u.step, u.requantize);
  }
}

}  // namespace nibble
