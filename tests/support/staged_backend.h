// SPDX-License-Identifier: MIT
// A decorator that lets tests written for host memory run a backend with memory of its own: each op
// takes its operands there, runs, and brings every byte back, inputs included. Bytes around the
// operands are guarded.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "backend/backend.h"

namespace nibble::test {

class StagedBackend final : public Backend {
 public:
  // The backend under test and the memory the operands go to.
  struct Device {
    explicit Device(std::unique_ptr<Backend> b)
        : backend(std::move(b)), memory(backend->allocate(kPoolBytes, "test operands")) {}
    std::unique_ptr<Backend> backend;
    Buffer memory;
  };
  explicit StagedBackend(std::shared_ptr<Device> device) : shared_(std::move(device)) {}
  // Not here, so that only staged_backend.cpp compiles what is virtual.
  std::string name() const override;

 private:
  static constexpr size_t kPoolBytes = size_t(1) << 30, kGuard = 256;
  static constexpr uint8_t kPattern = 0xff;  // NaN in every float type

  // The operands of one op, as ranges of host memory and their copies.
  class Staging {
   public:
    Staging(const StagedBackend& owner, std::vector<Tensor> tensors) : owner_(owner) {
      std::vector<std::pair<std::byte*, std::byte*>> ranges;
      for (const Tensor& t : tensors) {
        if (t && t.numel() > 0) ranges.emplace_back(t.data, t.data + extent(t));
      }
      std::sort(ranges.begin(), ranges.end());
      size_t used = 0;
      for (const auto& [begin, end] : ranges) {
        if (!ranges_.empty() && begin < ranges_.back().end) {  // views of one tensor
          ranges_.back().end = std::max(ranges_.back().end, end);
        } else {
          ranges_.push_back({begin, end, 0});
        }
      }
      for (Range& r : ranges_) {
        // The same alignment as on the host, so that aligned and unaligned paths both run.
        r.offset = used + kGuard + reinterpret_cast<uintptr_t>(r.begin) % 256;
        used = (r.offset + r.bytes() + kGuard + 255) / 256 * 256;
      }
      if (used > kPoolBytes) throw_internal("test operands of {} bytes", used);
      host_.assign(used, kPattern);
      for (const Range& r : ranges_) std::memcpy(host_.data() + r.offset, r.begin, r.bytes());
      owner_.device().upload(pool(), host_.data());
    }

    Tensor operator()(Tensor t) const {
      if (!t || t.numel() == 0) return t;
      for (const Range& r : ranges_) {
        if (t.data >= r.begin && t.data < r.end) {
          t.data = owner_.shared_->memory.data() + r.offset + (t.data - r.begin);
          return t;
        }
      }
      throw_internal("an operand was not staged");
    }
    KvView operator()(KvView kv) const { return {(*this)(kv.k), (*this)(kv.v)}; }
    HeadParams operator()(HeadParams p) const {
      p.q_norm = (*this)(p.q_norm), p.k_norm = (*this)(p.k_norm), p.bias = (*this)(p.bias);
      return p;
    }
    LinearWeight operator()(LinearWeight w) const {
      w.dense = (*this)(w.dense);
      w.packed = (*this)(w.packed);
      w.row_scale = (*this)(w.row_scale);
      return w;
    }

    void back() {
      std::vector<uint8_t> now(host_.size());
      owner_.device().download(now.data(), pool());
      std::vector<bool> inside(now.size());
      for (const Range& r : ranges_) {
        std::memcpy(r.begin, now.data() + r.offset, r.bytes());
        std::fill(inside.begin() + std::ptrdiff_t(r.offset),
                  inside.begin() + std::ptrdiff_t(r.offset + r.bytes()), true);
      }
      size_t stray = 0;
      for (size_t i = 0; i < now.size(); ++i) stray += !inside[i] && now[i] != kPattern;
      EXPECT_EQ(stray, 0u) << "bytes outside the operands were written";
    }

   private:
    struct Range {
      std::byte *begin, *end;
      size_t offset;
      size_t bytes() const { return size_t(end - begin); }
    };
    static size_t extent(const Tensor& t) {
      return size_t((t.dim(0) - 1) * t.row_stride + t.inner()) * dtype_bytes(t.dtype);
    }
    Tensor pool() const {
      return make_tensor(owner_.shared_->memory.data(), DType::u8, {int64_t(host_.size())});
    }
    const StagedBackend& owner_;
    std::vector<Range> ranges_;
    std::vector<uint8_t> host_;
  };

  template <class F>
  void staged(std::vector<Tensor> tensors, F&& f) const {
    Staging s(*this, std::move(tensors));
    f(s, device());
    s.back();
  }

  Buffer do_allocate(size_t n_bytes, std::string_view) override {
    auto* p = new std::byte[n_bytes + 256]();
    return Buffer(p, n_bytes, [](std::byte* data, size_t) { delete[] data; });
  }
  void do_upload(Tensor dst, const void* host) override {
    std::memcpy(dst.data, host, dst.bytes());
  }
  void do_download(void* host, Tensor src) override { std::memcpy(host, src.data, src.bytes()); }
  void do_copy(Tensor dst, Tensor src) override {
    staged({dst, src}, [&](const Staging& s, Backend& d) { d.copy(s(dst), s(src)); });
  }
  void do_sync() override {}
  size_t do_packed_bytes(int64_t out, int64_t in) const override {
    return device().packed_bytes(out, in);
  }
  void do_pack_rows(const LinearWeight& w, int64_t row, int64_t rows, const uint8_t* codes,
                    const uint8_t* scales) override {
    staged(parts(w), [&](const Staging& s, Backend& d) {
      d.pack_rows(s(w), row, rows, {codes, size_t(rows * w.in / 2)},
                  {scales, size_t(rows * w.in / 16)});
    });
  }
  void do_unpack_rows(const LinearWeight& w, int64_t row, int64_t rows, uint8_t* codes,
                      uint8_t* scales) const override {
    staged(parts(w), [&](const Staging& s, Backend& d) {
      d.unpack_rows(s(w), row, rows, {codes, size_t(rows * w.in / 2)},
                    {scales, size_t(rows * w.in / 16)});
    });
  }
  void do_quantize_rows(const LinearWeight& w, int64_t row, Tensor src, ScaleRule rule) override {
    staged(parts(w, {src}),
           [&](const Staging& s, Backend& d) { d.quantize_rows(s(w), row, s(src), rule); });
  }
  void do_embed(Tensor out, Tensor table, Tensor ids) override {
    staged({out, table, ids},
           [&](const Staging& s, Backend& d) { d.embed(s(out), s(table), s(ids)); });
  }
  void do_rms_norm(Tensor out, Tensor rstd, Tensor x, Tensor w, double eps) override {
    staged({out, rstd, x, w},
           [&](const Staging& s, Backend& d) { d.rms_norm(s(out), s(rstd), s(x), s(w), eps); });
  }
  void do_add_rms_norm(Tensor out, Tensor rstd, Tensor sum, Tensor a, Tensor b, Tensor w,
                       double eps) override {
    staged({out, rstd, sum, a, b, w}, [&](const Staging& s, Backend& d) {
      d.add_rms_norm(s(out), s(rstd), s(sum), s(a), s(b), s(w), eps);
    });
  }
  void do_rope_table(Tensor table, Tensor positions, const RopeFrequencies& f) override {
    staged({table, positions},
           [&](const Staging& s, Backend& d) { d.rope_table(s(table), s(positions), f); });
  }
  void do_add_bias(Tensor out, Tensor x, Tensor bias) override {
    staged({out, x, bias},
           [&](const Staging& s, Backend& d) { d.add_bias(s(out), s(x), s(bias)); });
  }
  void do_bias_rope(Tensor out, Tensor x, Tensor bias, Tensor table, StillPairs still) override {
    staged({out, x, bias, table}, [&](const Staging& s, Backend& d) {
      d.bias_rope(s(out), s(x), s(bias), s(table), still);
    });
  }
  void do_bias_back(Tensor db, Tensor dy, Accumulate a) override {
    staged({db, dy}, [&](const Staging& s, Backend& d) { d.bias_back(s(db), s(dy), a); });
  }
  void do_rope(Tensor out, Tensor x, Tensor table, Rotation rotation) override {
    staged({out, x, table},
           [&](const Staging& s, Backend& d) { d.rope(s(out), s(x), s(table), rotation); });
  }
  void do_norm_rope(Tensor out, Tensor rstd, Tensor x, Tensor w, Tensor table,
                    double eps) override {
    staged({out, rstd, x, w, table}, [&](const Staging& s, Backend& d) {
      d.norm_rope(s(out), s(rstd), s(x), s(w), s(table), eps);
    });
  }
  void do_kv_append(KvView kv, Tensor k, Tensor v, Tensor slots) override {
    staged({kv.k, kv.v, k, v, slots},
           [&](const Staging& s, Backend& d) { d.kv_append(s(kv), s(k), s(v), s(slots)); });
  }
  void do_split_heads(const HeadSlots& out, KvView kv, Tensor qkv, const HeadParams& params,
                      Tensor table, Tensor slots, double eps) override {
    staged({out.q, out.q_rstd, out.k, out.k_rstd, kv.k, kv.v, qkv, params.q_norm, params.k_norm,
            params.bias, table, slots},
           [&](const Staging& s, Backend& d) {
             d.split_heads({s(out.q), s(out.q_rstd), s(out.k), s(out.k_rstd)}, s(kv), s(qkv),
                           s(params), s(table), s(slots), eps);
           });
  }
  void do_attention(Tensor out, Tensor lse, Tensor q, KvView kv, Tensor sequences) override {
    staged({out, lse, q, kv.k, kv.v, sequences}, [&](const Staging& s, Backend& d) {
      d.attention(s(out), s(lse), s(q), s(kv), s(sequences));
    });
  }
  void do_split_heads_attention(Tensor out, Tensor lse, const HeadSlots& h, KvView kv, Tensor qkv,
                                const HeadParams& params, Tensor table, Tensor slots,
                                Tensor sequences, double eps) override {
    staged({out, lse, h.q, h.q_rstd, h.k, h.k_rstd, kv.k, kv.v, qkv, params.q_norm, params.k_norm,
            params.bias, table, slots, sequences},
           [&](const Staging& s, Backend& d) {
             d.split_heads_attention(s(out), s(lse), {s(h.q), s(h.q_rstd), s(h.k), s(h.k_rstd)},
                                     s(kv), s(qkv), s(params), s(table), s(slots), s(sequences),
                                     eps);
           });
  }
  void do_swiglu(Tensor out, Tensor gate, Tensor up) override {
    staged({out, gate, up},
           [&](const Staging& s, Backend& d) { d.swiglu(s(out), s(gate), s(up)); });
  }
  void do_add(Tensor out, Tensor a, Tensor b) override {
    staged({out, a, b}, [&](const Staging& s, Backend& d) { d.add(s(out), s(a), s(b)); });
  }
  void do_gather_rows(Tensor out, Tensor x, Tensor rows) override {
    staged({out, x, rows},
           [&](const Staging& s, Backend& d) { d.gather_rows(s(out), s(x), s(rows)); });
  }
  void do_sample(Tensor out, Tensor logits, Tensor rows, Tensor context, Choice choice) override {
    staged({out, logits, rows, context}, [&](const Staging& s, Backend& d) {
      d.sample(s(out), s(logits), s(rows), s(context), choice);
    });
  }
  void do_linear(Tensor out, Tensor x, const LinearWeight& w, Activations activations) override {
    staged(parts(w, {out, x}),
           [&](const Staging& s, Backend& d) { d.linear(s(out), s(x), s(w), activations); });
  }
  void do_linear_swiglu(Tensor act, Tensor gate_up, Tensor x, const LinearWeight& w,
                        Activations activations) override {
    staged(parts(w, {act, gate_up, x}), [&](const Staging& s, Backend& d) {
      d.linear_swiglu(s(act), s(gate_up), s(x), s(w), activations);
    });
  }
  void do_softmax_stats(Tensor stats, Tensor logits, Tensor targets, int64_t v_begin,
                        Accumulate accumulate) override {
    staged({stats, logits, targets}, [&](const Staging& s, Backend& d) {
      d.softmax_stats(s(stats), s(logits), s(targets), v_begin, accumulate);
    });
  }
  void do_cross_entropy(Tensor loss, Tensor stats, Tensor targets) override {
    staged({loss, stats, targets},
           [&](const Staging& s, Backend& d) { d.cross_entropy(s(loss), s(stats), s(targets)); });
  }
  void do_cross_entropy_back(Tensor dlogits, Tensor logits, Tensor stats, Tensor targets,
                             int64_t v_begin, double scale) override {
    staged({dlogits, logits, stats, targets}, [&](const Staging& s, Backend& d) {
      d.cross_entropy_back(s(dlogits), s(logits), s(stats), s(targets), v_begin, scale);
    });
  }
  void do_divergence(Tensor loss, Tensor dlogits, Tensor logits, Tensor stats, Tensor teacher,
                     Tensor teacher_stats, double scale, Accumulate a) override {
    staged({loss, dlogits, logits, stats, teacher, teacher_stats},
           [&](const Staging& s, Backend& d) {
             d.divergence(s(loss), s(dlogits), s(logits), s(stats), s(teacher), s(teacher_stats),
                          scale, a);
           });
  }
  void do_l1_loss(Tensor loss, Tensor dh, Tensor h, Tensor table, Tensor targets,
                  double scale) override {
    staged({loss, dh, h, table, targets}, [&](const Staging& s, Backend& d) {
      d.l1_loss(s(loss), s(dh), s(h), s(table), s(targets), scale);
    });
  }
  void do_linear_dgrad(Tensor dx, Tensor dy, const LinearWeight& w, Accumulate a) override {
    staged(parts(w, {dx, dy}),
           [&](const Staging& s, Backend& d) { d.linear_dgrad(s(dx), s(dy), s(w), a); });
  }
  void do_linear_wgrad(Tensor dw, Tensor dy, Tensor x, const GradWrite& write) override {
    staged({dw, dy, x},
           [&](const Staging& s, Backend& d) { d.linear_wgrad(s(dw), s(dy), s(x), write); });
  }
  bool do_linear_wgrad_squares(Tensor dw, Tensor parts, Tensor dy, Tensor x,
                               const GradWrite& write) override {
    bool done = false;
    staged({dw, parts, dy, x}, [&](const Staging& s, Backend& d) {
      done = d.linear_wgrad_squares(s(dw), s(parts), s(dy), s(x), write);
    });
    return done;
  }
  void do_rms_norm_back(Tensor dx, Tensor dw, Tensor dy, Tensor x, Tensor rstd, Tensor w,
                        Tensor base, Accumulate a) override {
    staged({dx, dw, dy, x, rstd, w, base}, [&](const Staging& s, Backend& d) {
      d.rms_norm_back(s(dx), s(dw), s(dy), s(x), s(rstd), s(w), s(base), a);
    });
  }
  void do_norm_rope_back(Tensor dx, Tensor dw, Tensor dy, Tensor x, Tensor rstd, Tensor w,
                         Tensor table, Accumulate a) override {
    staged({dx, dw, dy, x, rstd, w, table}, [&](const Staging& s, Backend& d) {
      d.norm_rope_back(s(dx), s(dw), s(dy), s(x), s(rstd), s(w), s(table), a);
    });
  }
  void do_attention_back(Tensor dq, Tensor dk, Tensor dv, Tensor dout, Tensor out, Tensor lse,
                         Tensor q, KvView kv, Tensor sequences) override {
    staged(
        {dq, dk, dv, dout, out, lse, q, kv.k, kv.v, sequences}, [&](const Staging& s, Backend& d) {
          d.attention_back(s(dq), s(dk), s(dv), s(dout), s(out), s(lse), s(q), s(kv), s(sequences));
        });
  }
  void do_swiglu_back(Tensor dgate, Tensor dup, Tensor dout, Tensor gate, Tensor up) override {
    staged({dgate, dup, dout, gate, up}, [&](const Staging& s, Backend& d) {
      d.swiglu_back(s(dgate), s(dup), s(dout), s(gate), s(up));
    });
  }
  void do_embed_back(Tensor dtable, Tensor dx, Tensor ids, Tensor order,
                     const GradWrite& write) override {
    staged({dtable, dx, ids, order}, [&](const Staging& s, Backend& d) {
      d.embed_back(s(dtable), s(dx), s(ids), s(order), write);
    });
  }
  void do_scatter_rows(Tensor out, Tensor x, Tensor rows) override {
    staged({out, x, rows},
           [&](const Staging& s, Backend& d) { d.scatter_rows(s(out), s(x), s(rows)); });
  }
  void do_sum_squares(Tensor out, Tensor x) override {
    staged({out, x}, [&](const Staging& s, Backend& d) { d.sum_squares(s(out), s(x)); });
  }
  void do_sums_of_squares(Tensor out, std::span<const Tensor> x) override {
    std::vector<Tensor> operands(x.begin(), x.end());
    operands.push_back(out);
    staged(operands, [&](const Staging& s, Backend& d) {
      std::vector<Tensor> there;
      for (const Tensor& t : x) there.push_back(s(t));
      d.sums_of_squares(s(out), there);
    });
  }
  void do_adamw_step(Tensor master, Tensor grad, Tensor m, Tensor v, MomentFormat format,
                     int64_t begin, int64_t count, const AdamwStep& step,
                     const Requantize& requantize) override {
    const AdamwUpdate one{master, grad, m, v, format, begin, count, step, requantize};
    do_adamw_steps({&one, 1});
  }
  void do_adamw_steps(std::span<const AdamwUpdate> updates) override {
    std::vector<Tensor> operands;
    for (const AdamwUpdate& u : updates) {
      operands.insert(operands.end(), {u.master, u.grad, u.m, u.v});
      if (u.requantize.weight) operands = parts(*u.requantize.weight, std::move(operands));
    }
    staged(operands, [&](const Staging& s, Backend& d) {
      std::vector<AdamwUpdate> there(updates.begin(), updates.end());
      std::vector<LinearWeight> weights(updates.size());
      for (size_t i = 0; i < there.size(); ++i) {
        AdamwUpdate& u = there[i];
        u.master = s(u.master), u.grad = s(u.grad), u.m = s(u.m), u.v = s(u.v);
        if (!u.requantize.weight) continue;
        weights[i] = s(*u.requantize.weight);
        u.requantize.weight = &weights[i];
      }
      d.adamw_steps(there);
    });
  }

  static std::vector<Tensor> parts(const LinearWeight& w, std::vector<Tensor> others = {}) {
    others.insert(others.end(), {w.dense, w.packed, w.row_scale});
    return others;
  }

  Backend& device() const { return *shared_->backend; }
  std::shared_ptr<Device> shared_;
};

}  // namespace nibble::test
