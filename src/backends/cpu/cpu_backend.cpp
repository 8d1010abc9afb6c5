// SPDX-License-Identifier: MIT
#include "backends/cpu/cpu_backend.h"

#include <cstring>

#include "backends/cpu/kernels/kernels.h"
#include "backends/cpu/kernels/packed_layout.h"
#include "backends/cpu/memory.h"
#include "backends/cpu/simd/target_control.h"
#include "core/memory/reserved_pages.h"
#include "core/memory_info.h"

namespace nibble {
namespace {

// Runs every op before it returns, so there is nothing to wait for.
class CpuBackend final : public Backend {
 public:
  explicit CpuBackend(int threads) : c_(threads) {}
  std::string name() const override {
    const int n = c_.pool.size();
    return fmt::format("cpu ({}, {} thread{})", cpu::active_target(), n, n == 1 ? "" : "s");
  }
  BackendTraits traits() const override {
    BackendTraits t;
    t.page_bytes = can_reserve_pages() ? page_bytes() : 0;
    return t;
  }
  uint64_t available_memory() const override { return system_memory().available_bytes; }

 private:
  Buffer do_allocate(size_t n_bytes, std::string_view what) override {
    return cpu::allocate_memory(n_bytes, what);
  }
  std::unique_ptr<ReservedPages> do_reserve(size_t n_bytes, std::string_view what) override {
    return std::make_unique<ReservedPages>(n_bytes, what);
  }
  void do_upload(Tensor dst, const void* host) override {
    if (dst.bytes() > 0) std::memcpy(dst.data, host, dst.bytes());
  }
  void do_download(void* host, Tensor src) override {
    if (src.bytes() > 0) std::memcpy(host, src.data, src.bytes());
  }
  void do_copy(Tensor dst, Tensor src) override { cpu::copy_strided(dst, src); }
  void do_sync() override {}

  size_t do_packed_bytes(int64_t out, int64_t in) const override {
    return cpu::packed_size(out, in);
  }
  void do_pack_rows(const LinearWeight& w, int64_t row_begin, int64_t rows, const uint8_t* codes,
                    const uint8_t* scales) override {
    cpu::pack_nvfp4(c_.pool, w.packed.as<uint8_t>(), w.in, row_begin, rows, codes, scales);
  }
  void do_unpack_rows(const LinearWeight& w, int64_t row_begin, int64_t rows, uint8_t* codes,
                      uint8_t* scales) const override {
    cpu::unpack_nvfp4(w.packed.as<uint8_t>(), w.in, row_begin, rows, codes, scales);
  }

  void do_embed(Tensor out, Tensor table, Tensor ids) override {
    check(out), check(table);
    cpu::embed(c_.pool, out, table, ids);
  }
  void do_rms_norm(Tensor out, Tensor rstd, Tensor x, Tensor w, double eps) override {
    check(x);
    cpu::rms_norm(c_, out, rstd, x, w, eps);
  }
  void do_add_rms_norm(Tensor out, Tensor rstd, Tensor sum, Tensor a, Tensor b, Tensor w,
                       double eps) override {
    check(a);
    cpu::add_rms_norm(c_, out, rstd, sum, a, b, w, eps);
  }
  void do_rope_table(Tensor table, Tensor positions, const RopeFrequencies& f) override {
    cpu::rope_table(c_, table, positions, f);
  }
  void do_add_bias(Tensor out, Tensor x, Tensor bias) override {
    check(x);
    cpu::add_bias(c_, out, x, bias);
  }
  void do_bias_rope(Tensor out, Tensor x, Tensor bias, Tensor table, StillPairs still) override {
    check(x);
    cpu::bias_rope(c_, out, x, bias, table, still);
  }
  void do_bias_back(Tensor db, Tensor dy, Accumulate a) override {
    check(dy);
    cpu::bias_back(c_, db, dy, a);
  }
  void do_rope(Tensor out, Tensor x, Tensor table, Rotation rotation) override {
    check(x);
    cpu::rope(c_, out, x, table, rotation);
  }
  void do_norm_rope(Tensor out, Tensor rstd, Tensor x, Tensor w, Tensor table,
                    double eps) override {
    check(x);
    cpu::norm_rope(c_, out, rstd, x, w, table, eps);
  }
  void do_kv_append(KvView kv, Tensor k, Tensor v, Tensor slots) override {
    check(k), check_cache(kv.k);
    cpu::kv_append(c_.pool, kv, k, v, slots);
  }
  void do_attention(Tensor out, Tensor lse, Tensor q, KvView kv, Tensor sequences) override {
    check(q), check_cache(kv.k);
    cpu::attention(c_, out, lse, q, kv, sequences);
  }
  void do_swiglu(Tensor out, Tensor gate, Tensor up) override {
    check(out);
    cpu::swiglu(c_.pool, out, gate, up);
  }
  void do_add(Tensor out, Tensor a, Tensor b) override {
    check(out);
    cpu::add(c_.pool, out, a, b);
  }
  void do_gather_rows(Tensor out, Tensor x, Tensor rows) override {
    check(x);
    cpu::gather_rows(c_.pool, out, x, rows);
  }
  void do_sample(Tensor out, Tensor logits, Tensor rows, Tensor context, Choice choice) override {
    check(logits);
    cpu::sample(c_.pool, out, logits, rows, context, choice);
  }
  void do_linear(Tensor out, Tensor x, const LinearWeight& w, Activations activations) override {
    check(x);
    if (!w.is_packed()) check(w.dense);
    cpu::linear(c_, out, x, w, activations);
  }
  void do_quantize_rows(const LinearWeight& w, int64_t row, Tensor src, ScaleRule rule) override {
    check(src);
    cpu::quantize_rows(c_, w, row, src, rule);
  }
  void do_softmax_stats(Tensor stats, Tensor logits, Tensor targets, int64_t v_begin,
                        Accumulate accumulate) override {
    check(logits);
    cpu::softmax_stats(c_, stats, logits, targets, v_begin, accumulate);
  }
  void do_cross_entropy(Tensor loss, Tensor stats, Tensor targets) override {
    check(stats);
    cpu::cross_entropy(c_, loss, stats, targets);
  }
  void do_cross_entropy_back(Tensor dlogits, Tensor logits, Tensor stats, Tensor targets,
                             int64_t v_begin, double scale) override {
    check(logits), check(dlogits);
    cpu::cross_entropy_back(c_, dlogits, logits, stats, targets, v_begin, scale);
  }
  void do_divergence(Tensor loss, Tensor dlogits, Tensor logits, Tensor stats, Tensor teacher,
                     Tensor teacher_stats, double scale, Accumulate accumulate) override {
    check(logits);
    if (dlogits) check(dlogits);
    cpu::divergence(c_, loss, dlogits, logits, stats, teacher, teacher_stats, scale, accumulate);
  }
  void do_l1_loss(Tensor loss, Tensor dh, Tensor h, Tensor table, Tensor targets,
                  double scale) override {
    check(h), check(table);
    cpu::l1_loss(c_, loss, dh, h, table, targets, scale);
  }
  void do_linear_dgrad(Tensor dx, Tensor dy, const LinearWeight& w, Accumulate a) override {
    check(dy), check(dx);
    cpu::linear_dgrad(c_, dx, dy, w, a);
  }
  void do_linear_wgrad(Tensor dw, Tensor dy, Tensor x, const GradWrite& write) override {
    check(dy), check(dw);
    cpu::linear_wgrad(c_, dw, dy, x, write);
  }
  void do_rms_norm_back(Tensor dx, Tensor dw, Tensor dy, Tensor x, Tensor rstd, Tensor w,
                        Tensor base, Accumulate a) override {
    check(x), check(dy);
    cpu::rms_norm_back(c_, dx, dw, dy, x, rstd, w, base, a);
  }
  void do_norm_rope_back(Tensor dx, Tensor dw, Tensor dy, Tensor x, Tensor rstd, Tensor w,
                         Tensor table, Accumulate a) override {
    check(x);
    cpu::norm_rope_back(c_, dx, dw, dy, x, rstd, w, table, a);
  }
  void do_attention_back(Tensor dq, Tensor dk, Tensor dv, Tensor dout, Tensor out, Tensor lse,
                         Tensor q, KvView kv, Tensor sequences) override {
    check(q);
    cpu::attention_back(c_, dq, dk, dv, dout, out, lse, q, kv, sequences);
  }
  void do_swiglu_back(Tensor dgate, Tensor dup, Tensor dout, Tensor gate, Tensor up) override {
    check(dout);
    cpu::swiglu_back(c_.pool, dgate, dup, dout, gate, up);
  }
  void do_embed_back(Tensor dtable, Tensor dx, Tensor ids, Tensor order,
                     const GradWrite& write) override {
    check(dx), check(dtable);
    cpu::embed_back(c_, dtable, dx, ids, order, write);
  }
  void do_scatter_rows(Tensor out, Tensor x, Tensor rows) override {
    check(x);
    cpu::scatter_rows(c_.pool, out, x, rows);
  }
  void do_sum_squares(Tensor out, Tensor x) override {
    check(x);
    cpu::sum_squares(c_, out, x);
  }
  void do_adamw_step(Tensor master, Tensor grad, Tensor m, Tensor v, MomentFormat format,
                     int64_t begin, int64_t count, const AdamwStep& step,
                     const Requantize& requantize) override {
    check(master), check(grad);
    cpu::adamw_step(c_, master, grad, m, v, format, begin, count, step, requantize);
  }

  static void check_cache(const Tensor& t) {
    if (t.dtype != DType::f8_e4m3) check(t);
  }
  // The op set also knows the reference backend's wide types.
  static void check(const Tensor& t) {
    if (t.dtype != DType::f32 && t.dtype != DType::bf16 && t.dtype != DType::f16) {
      throw_internal("the CPU backend computes in f32, bf16 or f16, not {}", t.describe());
    }
  }

  cpu::Context c_;
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(int threads) {
  return std::make_unique<CpuBackend>(threads > 0 ? threads : default_thread_count());
}

bool cpu_multiplies_bf16_pairs() { return cpu::use_bf16_pairs(); }

}  // namespace nibble
