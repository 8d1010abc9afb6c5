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
bool is_ids(const Tensor& t, int64_t n) {
  return t.dtype == DType::i32 && t.rank == 1 && t.dim(0) == n && t.contiguous();
}

}  // namespace

Buffer Backend::allocate(size_t n_bytes, std::string_view what) {
  const uint64_t available = available_memory();
  if (n_bytes > available) {
    throw_device("{} need {} of memory, but {} has only {} available", what, format_bytes(n_bytes),
                 name(), format_bytes(available));
  }
  return do_allocate(n_bytes, what);
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

void Backend::rope_table(Tensor table, Tensor positions, double theta) {
  require(table.rank == 2 && table.dim(1) % 2 == 0 && is_ids(positions, table.dim(0)) &&
              is_act(table) && table.contiguous(),
          "rope_table", "shapes", table, positions);
  do_rope_table(table, positions, theta);
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

void Backend::kv_append(KvView kv, Tensor k, Tensor v, Tensor slots) {
  require(
      is_act(k) && k.rank == 3 && same_shape(k, v) && k.dtype == v.dtype && is_ids(slots, k.dim(0)),
      "kv_append", "shapes", k, v, slots);
  require(kv.k.rank == 3 && same_shape(kv.k, kv.v) && kv.k.dtype == kv.v.dtype &&
              kv.k.dim(1) == k.dim(1) && kv.k.dim(2) == k.dim(2),
          "kv_append", "view", kv.k, kv.v, k);
  do_kv_append(kv, k, v, slots);
}

void Backend::attention(Tensor out, Tensor lse, Tensor q, KvView kv, Tensor sequences) {
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
  do_attention(out, lse, q, kv, sequences);
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

void Backend::argmax(Tensor out, Tensor logits) {
  require(is_act(logits) && logits.rank == 2 && logits.dim(1) > 0 && is_ids(out, logits.dim(0)),
          "argmax", "shapes", out, logits);
  do_argmax(out, logits);
}

void Backend::linear(Tensor out, Tensor x, const LinearWeight& w, Activations activations) {
  require(is_act(x) && x.rank == 2 && out.rank == 2 && out.dim(0) == x.dim(0) && x.dim(1) == w.in &&
              out.dim(1) == w.out && is_stat(out, x),
          "linear", "shapes", out, x, w.is_packed() ? w.packed : w.dense);
  require(bool(w.dense) != bool(w.packed), "linear", "a weight is dense or packed, one of them",
          w.dense, w.packed);
  require(!w.dense || (w.dense.rank == 2 && w.dense.dim(0) == w.out && w.dense.dim(1) == w.in &&
                       w.dense.contiguous()),
          "linear", "dense weight", w.dense);
  require(
      !w.packed || (w.packed.dtype == DType::u8 && w.packed.bytes() == packed_bytes(w.out, w.in)),
      "linear", "packed weight", w.packed);
  require(!w.row_scale || (w.row_scale.dtype == DType::f32 && w.row_scale.rank == 1 &&
                           w.row_scale.dim(0) == w.out),
          "linear", "row scale", w.row_scale);
  require(activations != Activations::int8 || w.is_packed(), "linear",
          "int8 activations need a packed weight, got", w.dense);
  require(activations != Activations::nvfp4 || w.in % 16 == 0, "linear",
          "W4A4 needs in % 16 == 0:", x);
  do_linear(out, x, w, activations);
}

void Backend::cross_entropy(Tensor loss, Tensor logits, Tensor targets) {
  require(is_act(logits) && logits.rank == 2 && loss.rank == 1 && loss.dim(0) == logits.dim(0) &&
              is_ids(targets, logits.dim(0)) && is_stat(loss, logits),
          "cross_entropy", "shapes", loss, logits, targets);
  do_cross_entropy(loss, logits, targets);
}

}  // namespace nibble
