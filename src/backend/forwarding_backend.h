// SPDX-License-Identifier: MIT
// A backend that hands every op to another one. Decorators derive from it and override what they
// watch or change; it is the one exception to "backends do not inherit from each other".
#pragma once
#include "backend/backend.h"

namespace nibble {

class ForwardingBackend : public Backend {
 public:
  explicit ForwardingBackend(Backend& inner) : inner_(inner) {}
  std::string name() const override { return inner_.name(); }
  uint64_t available_memory() const override { return inner_.available_memory(); }
  uint64_t available_host_memory() const override { return inner_.available_host_memory(); }
  bool memory_is_host() const override { return inner_.memory_is_host(); }
  // A decorator sees the plain ops, one by one.
  BackendTraits traits() const override {
    BackendTraits t = inner_.traits();
    t.one_launch_decode = t.hand_over = t.records = false;
    return t;
  }
  std::string linear_kernels(DType compute, Activations activations) const override {
    return inner_.linear_kernels(compute, activations);
  }
  ReadDeviceMemory device_memory_reader() const override { return inner_.device_memory_reader(); }
  uint64_t host_update_bytes() const override { return inner_.host_update_bytes(); }

 protected:
  Backend& inner_;

 private:
  Buffer do_allocate_host(size_t n_bytes, std::string_view what) override {
    return inner_.allocate(n_bytes, what, Place::host);
  }
  // What is reserved need not be available to whom it is handed on: that was judged here.
  std::unique_ptr<ReservedPages> do_reserve(size_t n_bytes, std::string_view what) override {
    return inner_.reserve(n_bytes, 0, what);
  }
  uint64_t do_mark_updates() override { return inner_.mark_updates(); }
  void do_await_updates(uint64_t mark) override { inner_.await_updates(mark); }
  Buffer do_allocate(size_t n_bytes, std::string_view what) override {
    return inner_.allocate(n_bytes, what);
  }
  void do_upload(Tensor dst, const void* host) override { inner_.upload(dst, host); }
  void do_download(void* host, Tensor src) override { inner_.download(host, src); }
  void do_copy(Tensor dst, Tensor src) override { inner_.copy(dst, src); }
  void do_sync() override { inner_.sync(); }
  size_t do_packed_bytes(int64_t out, int64_t in) const override {
    return inner_.packed_bytes(out, in);
  }
  void do_pack_rows(const LinearWeight& w, int64_t row, int64_t rows, const uint8_t* codes,
                    const uint8_t* scales) override {
    inner_.pack_rows(w, row, rows, {codes, size_t(rows * w.in / 2)},
                     {scales, size_t(rows * w.in / 16)});
  }
  void do_unpack_rows(const LinearWeight& w, int64_t row, int64_t rows, uint8_t* codes,
                      uint8_t* scales) const override {
    inner_.unpack_rows(w, row, rows, {codes, size_t(rows * w.in / 2)},
                       {scales, size_t(rows * w.in / 16)});
  }
  void do_embed(Tensor out, Tensor table, Tensor ids) override { inner_.embed(out, table, ids); }
  void do_rms_norm(Tensor out, Tensor rstd, Tensor x, Tensor w, double eps) override {
    inner_.rms_norm(out, rstd, x, w, eps);
  }
  void do_add_rms_norm(Tensor out, Tensor rstd, Tensor sum, Tensor a, Tensor b, Tensor w,
                       double eps) override {
    inner_.add_rms_norm(out, rstd, sum, a, b, w, eps);
  }
  void do_norm_rope(Tensor out, Tensor rstd, Tensor x, Tensor w, Tensor table,
                    double eps) override {
    inner_.norm_rope(out, rstd, x, w, table, eps);
  }
  void do_rope_table(Tensor table, Tensor positions, const RopeFrequencies& f) override {
    inner_.rope_table(table, positions, f);
  }
  void do_add_bias(Tensor out, Tensor x, Tensor bias) override { inner_.add_bias(out, x, bias); }
  void do_bias_rope(Tensor out, Tensor x, Tensor bias, Tensor table, StillPairs still) override {
    inner_.bias_rope(out, x, bias, table, still);
  }
  void do_bias_back(Tensor db, Tensor dy, Accumulate a) override { inner_.bias_back(db, dy, a); }
  void do_rope(Tensor out, Tensor x, Tensor table, Rotation rotation) override {
    inner_.rope(out, x, table, rotation);
  }
  void do_split_heads(const HeadSlots& out, KvView kv, Tensor qkv, const HeadParams& params,
                      Tensor table, Tensor slots, double eps) override {
    inner_.split_heads(out, kv, qkv, params, table, slots, eps);
  }
  void do_linear_swiglu(Tensor act, Tensor gate_up, Tensor x, const LinearWeight& w,
                        Activations activations) override {
    inner_.linear_swiglu(act, gate_up, x, w, activations);
  }
  void do_kv_append(KvView kv, Tensor k, Tensor v, Tensor slots) override {
    inner_.kv_append(kv, k, v, slots);
  }
  void do_attention(Tensor out, Tensor lse, Tensor q, KvView kv, Tensor sequences) override {
    inner_.attention(out, lse, q, kv, sequences);
  }
  void do_swiglu(Tensor out, Tensor gate, Tensor up) override { inner_.swiglu(out, gate, up); }
  void do_add(Tensor out, Tensor a, Tensor b) override { inner_.add(out, a, b); }
  void do_gather_rows(Tensor out, Tensor x, Tensor rows) override {
    inner_.gather_rows(out, x, rows);
  }
  void do_sample(Tensor out, Tensor logits, Tensor rows, Tensor context, Choice choice) override {
    inner_.sample(out, logits, rows, context, choice);
  }
  void do_linear(Tensor out, Tensor x, const LinearWeight& w, Activations activations) override {
    inner_.linear(out, x, w, activations);
  }
  void do_quantize_rows(const LinearWeight& w, int64_t row, Tensor src, ScaleRule rule) override {
    inner_.quantize_rows(w, row, src, rule);
  }
  void do_softmax_stats(Tensor stats, Tensor logits, Tensor targets, int64_t v_begin,
                        Accumulate accumulate) override {
    inner_.softmax_stats(stats, logits, targets, v_begin, accumulate);
  }
  void do_cross_entropy(Tensor loss, Tensor stats, Tensor targets) override {
    inner_.cross_entropy(loss, stats, targets);
  }
  void do_cross_entropy_back(Tensor dlogits, Tensor logits, Tensor stats, Tensor targets,
                             int64_t v_begin, double scale) override {
    inner_.cross_entropy_back(dlogits, logits, stats, targets, v_begin, scale);
  }
  void do_divergence(Tensor loss, Tensor dlogits, Tensor logits, Tensor stats, Tensor teacher,
                     Tensor teacher_stats, double scale, Accumulate accumulate) override {
    inner_.divergence(loss, dlogits, logits, stats, teacher, teacher_stats, scale, accumulate);
  }
  void do_l1_loss(Tensor loss, Tensor dh, Tensor h, Tensor table, Tensor targets,
                  double scale) override {
    inner_.l1_loss(loss, dh, h, table, targets, scale);
  }
  void do_linear_dgrad(Tensor dx, Tensor dy, const LinearWeight& w, Accumulate a) override {
    inner_.linear_dgrad(dx, dy, w, a);
  }
  void do_linear_wgrad(Tensor dw, Tensor dy, Tensor x, const GradWrite& write) override {
    inner_.linear_wgrad(dw, dy, x, write);
  }
  bool do_linear_wgrad_squares(Tensor dw, Tensor parts, Tensor dy, Tensor x,
                               const GradWrite& write) override {
    return inner_.linear_wgrad_squares(dw, parts, dy, x, write);
  }
  void do_rms_norm_back(Tensor dx, Tensor dw, Tensor dy, Tensor x, Tensor rstd, Tensor w,
                        Tensor base, Accumulate a) override {
    inner_.rms_norm_back(dx, dw, dy, x, rstd, w, base, a);
  }
  void do_norm_rope_back(Tensor dx, Tensor dw, Tensor dy, Tensor x, Tensor rstd, Tensor w,
                         Tensor table, Accumulate a) override {
    inner_.norm_rope_back(dx, dw, dy, x, rstd, w, table, a);
  }
  void do_attention_back(Tensor dq, Tensor dk, Tensor dv, Tensor dout, Tensor out, Tensor lse,
                         Tensor q, KvView kv, Tensor sequences) override {
    inner_.attention_back(dq, dk, dv, dout, out, lse, q, kv, sequences);
  }
  void do_swiglu_back(Tensor dgate, Tensor dup, Tensor dout, Tensor gate, Tensor up) override {
    inner_.swiglu_back(dgate, dup, dout, gate, up);
  }
  void do_embed_back(Tensor dtable, Tensor dx, Tensor ids, Tensor order,
                     const GradWrite& write) override {
    inner_.embed_back(dtable, dx, ids, order, write);
  }
  void do_scatter_rows(Tensor out, Tensor x, Tensor rows) override {
    inner_.scatter_rows(out, x, rows);
  }
  void do_sum_squares(Tensor out, Tensor x) override { inner_.sum_squares(out, x); }
  void do_adamw_step(Tensor master, Tensor grad, Tensor m, Tensor v, MomentFormat format,
                     int64_t begin, int64_t count, const AdamwStep& step,
                     const Requantize& requantize) override {
    inner_.adamw_step(master, grad, m, v, format, begin, count, step, requantize);
  }
};

}  // namespace nibble
