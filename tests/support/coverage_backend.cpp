// SPDX-License-Identifier: MIT
// Sizes carry the letters of backend.h.
#include "support/coverage_backend.h"

#include <utility>

#include "backend/forwarding_backend.h"
#include "support/op_coverage.h"

namespace nibble::test {
namespace {

class CoverageBackend final : public ForwardingBackend {
 public:
  explicit CoverageBackend(std::unique_ptr<Backend> tested)
      : ForwardingBackend(*tested), tested_(std::move(tested)) {}
  BackendTraits traits() const override { return inner_.traits(); }
  std::unique_ptr<HandOver> make_hand_over() override { return inner_.make_hand_over(); }

 private:
  void do_copy(Tensor dst, Tensor src) override {
    inner_.copy(dst, src);
    rows("copy", src).act("src", src).like_act("dst", dst).went_through();
  }
  void do_pack_rows(const LinearWeight& w, int64_t row, int64_t n, const uint8_t* codes,
                    const uint8_t* scales) override {
    inner_.pack_rows(w, row, n, {codes, size_t(n * w.in / 2)}, {scales, size_t(n * w.in / 16)});
    part("pack_rows", w, n).went_through();
  }
  void do_unpack_rows(const LinearWeight& w, int64_t row, int64_t n, uint8_t* codes,
                      uint8_t* scales) const override {
    inner_.unpack_rows(w, row, n, {codes, size_t(n * w.in / 2)}, {scales, size_t(n * w.in / 16)});
    part("unpack_rows", w, n).went_through();
  }
  void do_quantize_rows(const LinearWeight& w, int64_t row, Tensor src, ScaleRule rule) override {
    inner_.quantize_rows(w, row, src, rule);
    part("quantize_rows", w, src.dim(0))
        .typed("src", src)
        .value("rule", scale_rule_name(rule))
        .went_through();
  }
  void do_embed(Tensor out, Tensor table, Tensor ids) override {
    inner_.embed(out, table, ids);
    rows("embed", out).act("out", out).typed("table", table).size("V", table.dim(0)).went_through();
  }
  void do_rms_norm(Tensor out, Tensor rstd, Tensor x, Tensor w, double eps) override {
    inner_.rms_norm(out, rstd, x, w, eps);
    rows("rms_norm", x).act("x", x).like_act("out", out).typed("rstd", rstd).went_through();
  }
  void do_add_rms_norm(Tensor out, Tensor rstd, Tensor sum, Tensor a, Tensor b, Tensor w,
                       double eps) override {
    inner_.add_rms_norm(out, rstd, sum, a, b, w, eps);
    rows("add_rms_norm", a)
        .act("a", a)
        .like_act("b", b)
        .like_act("out", out)
        .like_act("sum", sum)
        .typed("rstd", rstd)
        .went_through();
  }
  void do_rope_table(Tensor table, Tensor positions, const RopeFrequencies& f) override {
    inner_.rope_table(table, positions, f);
    OpCall("rope_table")
        .typed("table", table)
        .size("N", table.dim(0))
        .size("D", table.dim(1))
        .went_through();
  }
  void do_rope(Tensor out, Tensor x, Tensor table, Rotation rotation) override {
    inner_.rope(out, x, table, rotation);
    heads("rope", x)
        .like_act("out", out)
        .value("rotation", rotation == Rotation::forward ? "forward" : "backward")
        .went_through();
  }
  void do_norm_rope(Tensor out, Tensor rstd, Tensor x, Tensor w, Tensor table,
                    double eps) override {
    inner_.norm_rope(out, rstd, x, w, table, eps);
    heads("norm_rope", x).like_act("out", out).typed("rstd", rstd).went_through();
  }
  void do_add_bias(Tensor out, Tensor x, Tensor bias) override {
    inner_.add_bias(out, x, bias);
    heads("add_bias", x).like_act("out", out).went_through();
  }
  void do_bias_rope(Tensor out, Tensor x, Tensor bias, Tensor table, StillPairs still) override {
    inner_.bias_rope(out, x, bias, table, still);
    heads("bias_rope", x).like_act("out", out).went_through();
  }
  void do_bias_back(Tensor db, Tensor dy, Accumulate a) override {
    inner_.bias_back(db, dy, a);
    wide("bias_back", dy, "width")
        .act("dy", dy)
        .typed("db", db)
        .value("accumulate", accumulates(a))
        .went_through();
  }
  void do_kv_append(KvView kv, Tensor k, Tensor v, Tensor slots) override {
    inner_.kv_append(kv, k, v, slots);
    OpCall("kv_append")
        .act("k", k)
        .like_act("v", v)
        .typed("cache", kv.k)
        .size("N", k.dim(0))
        .size("Hkv", k.dim(1))
        .size("D", k.dim(2))
        .went_through();
  }
  void do_split_heads(const HeadSlots& out, KvView kv, Tensor qkv, const HeadParams& params,
                      Tensor table, Tensor slots, double eps) override {
    inner_.split_heads(out, kv, qkv, params, table, slots, eps);
    split("split_heads", out, kv, qkv).went_through();
  }
  void do_attention(Tensor out, Tensor lse, Tensor q, KvView kv, Tensor sequences) override {
    inner_.attention(out, lse, q, kv, sequences);
    attend("attention", q, kv, sequences).typed("lse", lse).like_act("out", out).went_through();
  }
  void do_split_heads_attention(Tensor out, Tensor lse, const HeadSlots& slots_of, KvView kv,
                                Tensor qkv, const HeadParams& params, Tensor table, Tensor slots,
                                Tensor sequences, double eps) override {
    inner_.split_heads_attention(out, lse, slots_of, kv, qkv, params, table, slots, sequences, eps);
    split("split_heads_attention", slots_of, kv, qkv)
        .typed("lse", lse)
        .size("slots", kv.k.dim(0))
        .size("sequences", sequences.dim(0))
        .went_through();
  }
  void do_swiglu(Tensor out, Tensor gate, Tensor up) override {
    inner_.swiglu(out, gate, up);
    wide("swiglu", gate, "F")
        .act("gate", gate)
        .like_act("up", up)
        .like_act("out", out)
        .went_through();
  }
  void do_add(Tensor out, Tensor a, Tensor b) override {
    inner_.add(out, a, b);
    rows("add", a).act("a", a).like_act("b", b).like_act("out", out).went_through();
  }
  void do_gather_rows(Tensor out, Tensor x, Tensor wanted) override {
    inner_.gather_rows(out, x, wanted);
    rows("gather_rows", out).act("x", x).like_act("out", out).went_through();
  }
  void do_sample(Tensor out, Tensor logits, Tensor table, Tensor context, Choice choice) override {
    inner_.sample(out, logits, table, context, choice);
    wide("sample", logits, "V")
        .typed("logits", logits)
        .typed("context", context)
        .value("choice", choice == Choice::greedy ? "greedy" : "any")
        .went_through();
  }
  void do_linear(Tensor out, Tensor x, const LinearWeight& w, Activations activations) override {
    inner_.linear(out, x, w, activations);
    product("linear", x, w)
        .act("x", x)
        .like_act("out", out)
        .value("activations", activations_name(activations))
        .went_through();
  }
  void do_linear_swiglu(Tensor act, Tensor gate_up, Tensor x, const LinearWeight& w,
                        Activations activations) override {
    inner_.linear_swiglu(act, gate_up, x, w, activations);
    product("linear_swiglu", x, w)
        .act("x", x)
        .like_act("gate_up", gate_up)
        .value("activations", activations_name(activations))
        .went_through();
  }
  void do_decode_step(const DecodePlan& p, const std::function<void()>& plain) override {
    inner_.decode_step(p, plain);
    const DecodeLayer& first = p.layers.front();
    rows("decode_step", p.x)
        .act("x", p.x)
        .weight("w", first.qkv)
        .weight("head", p.head)
        .typed("cache", first.kv.k)
        .typed("logits", p.logits)
        .value("activations", activations_name(p.activations))
        .value("way", inner_.decode_way(p).one_launch ? "one launch" : "ops")
        .size("Hq", p.q_heads)
        .size("Hkv", p.kv_heads)
        .size("D", p.head_width)
        .size("F", first.down.in)
        .size("V", p.head.out)
        .size("layers", int64_t(p.layers.size()))
        .went_through();
  }
  DecodeWay do_decode_way(const DecodePlan& p) const override { return inner_.decode_way(p); }
  void do_repeat(std::unique_ptr<Recording>& recording, const std::function<void()>& ops) override {
    inner_.repeat(recording, ops);
  }
  void do_softmax_stats(Tensor stats, Tensor logits, Tensor targets, int64_t v_begin,
                        Accumulate accumulate) override {
    inner_.softmax_stats(stats, logits, targets, v_begin, accumulate);
    wide("softmax_stats", logits, "Vc")
        .typed("logits", logits)
        .value("accumulate", accumulates(accumulate))
        .went_through();
  }
  void do_cross_entropy(Tensor loss, Tensor stats, Tensor targets) override {
    inner_.cross_entropy(loss, stats, targets);
    OpCall("cross_entropy").typed("stats", stats).size("N", loss.numel()).went_through();
  }
  void do_cross_entropy_back(Tensor dlogits, Tensor logits, Tensor stats, Tensor targets,
                             int64_t v_begin, double scale) override {
    inner_.cross_entropy_back(dlogits, logits, stats, targets, v_begin, scale);
    wide("cross_entropy_back", logits, "Vc")
        .typed("logits", logits)
        .typed("dlogits", dlogits)
        .went_through();
  }
  void do_divergence(Tensor loss, Tensor dlogits, Tensor logits, Tensor stats, Tensor teacher,
                     Tensor teacher_stats, double scale, Accumulate accumulate) override {
    inner_.divergence(loss, dlogits, logits, stats, teacher, teacher_stats, scale, accumulate);
    wide("divergence", logits, "Vc")
        .typed("logits", logits)
        .typed("dlogits", dlogits)
        .value("accumulate", accumulates(accumulate))
        .went_through();
  }
  void do_l1_loss(Tensor loss, Tensor dh, Tensor h, Tensor table, Tensor targets,
                  double scale) override {
    inner_.l1_loss(loss, dh, h, table, targets, scale);
    rows("l1_loss", h).act("h", h).like_act("dh", dh).typed("table", table).went_through();
  }
  void do_linear_dgrad(Tensor dx, Tensor dy, const LinearWeight& w, Accumulate a) override {
    inner_.linear_dgrad(dx, dy, w, a);
    product("linear_dgrad", dy, w)
        .act("dy", dy)
        .like_act("dx", dx)
        .value("accumulate", accumulates(a))
        .went_through();
  }
  void do_linear_wgrad(Tensor dw, Tensor dy, Tensor x, const GradWrite& write) override {
    inner_.linear_wgrad(dw, dy, x, write);
    gradient("linear_wgrad", dw, dy, x, write).went_through();
  }
  bool do_linear_wgrad_squares(Tensor dw, Tensor parts, Tensor dy, Tensor x,
                               const GradWrite& write) override {
    const bool done = inner_.linear_wgrad_squares(dw, parts, dy, x, write);
    if (done) gradient("linear_wgrad_squares", dw, dy, x, write).went_through();
    return done;
  }
  void do_rms_norm_back(Tensor dx, Tensor dw, Tensor dy, Tensor x, Tensor rstd, Tensor w,
                        Tensor base, Accumulate a) override {
    inner_.rms_norm_back(dx, dw, dy, x, rstd, w, base, a);
    rows("rms_norm_back", x)
        .act("x", x)
        .like_act("dx", dx)
        .like_act("dy", dy)
        .typed("dw", dw)
        .value("base", base ? "given" : "none")
        .went_through();
  }
  void do_norm_rope_back(Tensor dx, Tensor dw, Tensor dy, Tensor x, Tensor rstd, Tensor w,
                         Tensor table, Accumulate a) override {
    inner_.norm_rope_back(dx, dw, dy, x, rstd, w, table, a);
    heads("norm_rope_back", x).like_act("dx", dx).like_act("dy", dy).typed("dw", dw).went_through();
  }
  void do_attention_back(Tensor dq, Tensor dk, Tensor dv, Tensor dout, Tensor out, Tensor lse,
                         Tensor q, KvView kv, Tensor sequences) override {
    inner_.attention_back(dq, dk, dv, dout, out, lse, q, kv, sequences);
    attend("attention_back", q, kv, sequences)
        .like_act("dq", dq)
        .like_act("dk", dk)
        .like_act("dv", dv)
        .went_through();
  }
  void do_swiglu_back(Tensor dgate, Tensor dup, Tensor dout, Tensor gate, Tensor up) override {
    inner_.swiglu_back(dgate, dup, dout, gate, up);
    wide("swiglu_back", gate, "F")
        .act("gate", gate)
        .like_act("up", up)
        .like_act("dgate", dgate)
        .like_act("dup", dup)
        .like_act("dout", dout)
        .went_through();
  }
  void do_embed_back(Tensor dtable, Tensor dx, Tensor ids, Tensor order,
                     const GradWrite& write) override {
    inner_.embed_back(dtable, dx, ids, order, write);
    rows("embed_back", dx)
        .act("dx", dx)
        .typed("dtable", dtable)
        .value("accumulate", accumulates(write.accumulate))
        .size("V", dtable.dim(0))
        .went_through();
  }
  void do_scatter_rows(Tensor out, Tensor x, Tensor at) override {
    inner_.scatter_rows(out, x, at);
    rows("scatter_rows", out).act("x", x).like_act("out", out).went_through();
  }
  void do_sum_squares(Tensor out, Tensor x) override {
    inner_.sum_squares(out, x);
    OpCall("sum_squares").typed("x", x).size("elements", x.numel()).went_through();
  }
  void do_sums_of_squares(Tensor out, std::span<const Tensor> x) override {
    inner_.sums_of_squares(out, x);
    for (const Tensor& t : x) {
      OpCall("sums_of_squares")
          .typed("x", t)
          .size("elements", t.numel())
          .size("tensors", int64_t(x.size()))
          .went_through();
    }
  }
  void do_adamw_steps(std::span<const AdamwUpdate> updates) override {
    inner_.adamw_steps(updates);
    for (const AdamwUpdate& u : updates) {
      const Requantize& rq = u.requantize;
      OpCall("adamw_steps")
          .typed("master", u.master)
          .typed("grad", u.grad)
          .value("moments", moment_format_name(u.format))
          .value("requantize", rq.weight ? scale_rule_name(rq.rule) : "none")
          .size("elements", u.count)
          .size("updates", int64_t(updates.size()))
          .went_through();
    }
  }

  static std::string_view accumulates(Accumulate a) { return a == Accumulate::yes ? "yes" : "no"; }
  static OpCall wide(std::string_view op, const Tensor& t, const std::string& width) {
    return OpCall(op).size("N", t.rows()).size(width, t.cols());
  }
  static OpCall rows(std::string_view op, const Tensor& t) { return wide(op, t, "C"); }
  static OpCall heads(std::string_view op, const Tensor& x) {
    return OpCall(op).act("x", x).size("N", x.dim(0)).size("H", x.dim(1)).size("D", x.dim(2));
  }
  static OpCall part(std::string_view op, const LinearWeight& w, int64_t n) {
    return OpCall(op).weight("w", w).size("rows", n).size("in", w.in);
  }
  static OpCall product(std::string_view op, const Tensor& x, const LinearWeight& w) {
    return OpCall(op).weight("w", w).size("N", x.dim(0)).size("in", w.in).size("out", w.out);
  }
  static OpCall gradient(std::string_view op, const Tensor& dw, const Tensor& dy, const Tensor& x,
                         const GradWrite& write) {
    return OpCall(op)
        .act("x", x)
        .like_act("dy", dy)
        .typed("dw", dw)
        .value("accumulate", accumulates(write.accumulate))
        .size("N", x.dim(0))
        .size("in", dw.dim(1))
        .size("out", dw.dim(0));
  }
  static OpCall split(std::string_view op, const HeadSlots& out, KvView kv, const Tensor& qkv) {
    return OpCall(op)
        .act("qkv", qkv)
        .typed("cache", kv.k)
        .typed("rstd", out.q_rstd)
        .size("N", qkv.dim(0))
        .size("Hq", out.q.dim(1))
        .size("Hkv", out.k.dim(1))
        .size("D", out.q.dim(2));
  }
  static OpCall attend(std::string_view op, const Tensor& q, KvView kv, const Tensor& sequences) {
    return OpCall(op)
        .act("q", q)
        .typed("cache", kv.k)
        .size("N", q.dim(0))
        .size("Hq", q.dim(1))
        .size("Hkv", kv.k.dim(1))
        .size("D", q.dim(2))
        .size("slots", kv.k.dim(0))
        .size("sequences", sequences.dim(0));
  }

  std::unique_ptr<Backend> tested_;
};

[[maybe_unused]] const auto* const writer =
    ::testing::AddGlobalTestEnvironment(new WriteOpCoverage);

}  // namespace

std::unique_ptr<Backend> noting_ops(std::unique_ptr<Backend> tested) {
  return std::make_unique<CoverageBackend>(std::move(tested));
}

std::unique_ptr<Backend> with_op_coverage(std::unique_ptr<Backend> tested) {
  return op_coverage_file() ? noting_ops(std::move(tested)) : std::move(tested);
}

}  // namespace nibble::test
