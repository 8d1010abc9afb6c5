// SPDX-License-Identifier: MIT
// Runs the wiring without computing: validates every shape, counts calls and lets measuring arenas
// find their size.
#pragma once
#include <memory>

#include "backend/backend.h"

namespace nibble {

class NullBackend final : public Backend {
 public:
  // Layout sizes are asked of `layout`, the backend the dry run stands for.
  explicit NullBackend(const Backend& layout) : layout_(layout) {}
  std::string name() const override { return "null"; }
  int64_t calls() const { return calls_; }

 private:
  Buffer do_allocate(size_t n_bytes, std::string_view) override {
    return Buffer(nullptr, n_bytes, nullptr);
  }
  void do_upload(Tensor, const void*) override { ++calls_; }
  void do_download(void*, Tensor) override { ++calls_; }
  void do_copy(Tensor, Tensor) override { ++calls_; }
  void do_sync() override {}
  size_t do_packed_bytes(int64_t out, int64_t in) const override {
    return layout_.packed_bytes(out, in);
  }
  void do_pack_rows(const LinearWeight&, int64_t, int64_t, const uint8_t*,
                    const uint8_t*) override {
    ++calls_;
  }
  void do_unpack_rows(const LinearWeight&, int64_t, int64_t, uint8_t*, uint8_t*) const override {}
  void do_embed(Tensor, Tensor, Tensor) override { ++calls_; }
  void do_rms_norm(Tensor, Tensor, Tensor, Tensor, double) override { ++calls_; }
  void do_add_rms_norm(Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, double) override {
    ++calls_;
  }
  void do_rope_table(Tensor, Tensor, const RopeFrequencies&) override { ++calls_; }
  void do_add_bias(Tensor, Tensor, Tensor) override { ++calls_; }
  void do_bias_rope(Tensor, Tensor, Tensor, Tensor, StillPairs) override { ++calls_; }
  void do_bias_back(Tensor, Tensor, Accumulate) override { ++calls_; }
  void do_rope(Tensor, Tensor, Tensor, Rotation) override { ++calls_; }
  void do_norm_rope(Tensor, Tensor, Tensor, Tensor, Tensor, double) override { ++calls_; }
  void do_kv_append(KvView, Tensor, Tensor, Tensor) override { ++calls_; }
  void do_attention(Tensor, Tensor, Tensor, KvView, Tensor) override { ++calls_; }
  void do_swiglu(Tensor, Tensor, Tensor) override { ++calls_; }
  void do_add(Tensor, Tensor, Tensor) override { ++calls_; }
  void do_gather_rows(Tensor, Tensor, Tensor) override { ++calls_; }
  void do_sample(Tensor, Tensor, Tensor, Tensor, Choice) override { ++calls_; }
  void do_linear(Tensor, Tensor, const LinearWeight&, Activations) override { ++calls_; }
  void do_quantize_rows(const LinearWeight&, int64_t, Tensor, ScaleRule) override { ++calls_; }
  void do_softmax_stats(Tensor, Tensor, Tensor, int64_t, Accumulate) override { ++calls_; }
  void do_cross_entropy(Tensor, Tensor, Tensor) override { ++calls_; }
  void do_cross_entropy_back(Tensor, Tensor, Tensor, Tensor, int64_t, double) override { ++calls_; }
  void do_divergence(Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, double, Accumulate) override {
    ++calls_;
  }
  void do_l1_loss(Tensor, Tensor, Tensor, Tensor, Tensor, double) override { ++calls_; }
  void do_linear_dgrad(Tensor, Tensor, const LinearWeight&, Accumulate) override { ++calls_; }
  void do_linear_wgrad(Tensor, Tensor, Tensor, const GradWrite&) override { ++calls_; }
  void do_rms_norm_back(Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor,
                        Accumulate) override {
    ++calls_;
  }
  void do_norm_rope_back(Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor,
                         Accumulate) override {
    ++calls_;
  }
  void do_attention_back(Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, KvView,
                         Tensor) override {
    ++calls_;
  }
  void do_swiglu_back(Tensor, Tensor, Tensor, Tensor, Tensor) override { ++calls_; }
  void do_embed_back(Tensor, Tensor, Tensor, Tensor, const GradWrite&) override { ++calls_; }
  void do_scatter_rows(Tensor, Tensor, Tensor) override { ++calls_; }
  void do_sum_squares(Tensor, Tensor) override { ++calls_; }
  void do_adamw_step(Tensor, Tensor, Tensor, Tensor, MomentFormat, int64_t, int64_t,
                     const AdamwStep&, const Requantize&) override {
    ++calls_;
  }

  const Backend& layout_;
  int64_t calls_ = 0;
};

}  // namespace nibble
