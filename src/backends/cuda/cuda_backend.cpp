// SPDX-License-Identifier: MIT
#include "backends/cuda/cuda_backend.h"

#include <cstring>
#include <set>

#include "backends/cuda/decode/one_launch.h"
#include "backends/cuda/free_memory.h"
#include "backends/cuda/graph.h"
#include "backends/cuda/host_updates.h"
#include "backends/cuda/kernels/kernels.h"
#include "backends/cuda/kernels/linear/fp4_native.h"
#include "backends/cuda/kernels/linear/linear.h"
#include "backends/cuda/step_hand_over.h"
#include "core/log.h"
#include "core/memory_info.h"

namespace nibble {
namespace {

class CudaBackend final : public Backend {
 public:
  CudaBackend(const CudaDevice& device, const CudaOptions& options)
      : device_(device), decode_(options.decode), c_(device.index) {
    c_.require_native_fp4 = options.require_native_fp4;
  }
  std::string name() const override {
    return fmt::format("cuda ({}, compute capability {}.{})", device_.name, device_.major,
                       device_.minor);
  }
  BackendTraits traits() const override {
    BackendTraits t;
    t.device = DeviceKind::cuda;
    t.native_fp4 = cuda::native_fp4_device(c_);
    t.one_launch_decode = c_.token_kernel;
    t.code_capability = c_.capability;
    t.hand_over = true;
    t.records = !c_.sync_each_op;
    // In 16 bits the kernel, and with it the order of a sum, depends on the number of tokens.
    t.batch_invariant_16_bit = false;
    return t;
  }
  ReadDeviceMemory device_memory_reader() const override {
    return [account = c_.memory] { return account->read(); };
  }
  uint64_t host_update_bytes() const override { return cuda::HostUpdates::kDeviceBytes; }
  bool memory_is_host() const override { return device_.unified_memory; }
  // Where CPU and GPU share memory a sixteenth stays for everything else that runs: a GPU's memory
  // cannot be swapped out.
  uint64_t available_memory() const override {
    const uint64_t free = cuda::free_memory(c_.device).free;
    return device_.unified_memory ? free / 16 * 15 : free;
  }

  uint64_t available_host_memory() const override { return system_memory().available_bytes; }

  std::string linear_kernels(DType compute, Activations activations) const override {
    if (compute == DType::f32) {
      return fmt::format("one kernel in fp32 for any number of tokens{}",
                         activations == Activations::nvfp4 ? " (W4A4 emulated exactly)" : "");
    }
    return fmt::format("one token: {}; a prompt: {}", cuda::linear_kernel_name(c_, activations, 1),
                       cuda::linear_kernel_name(c_, activations, 1024));
  }

  std::unique_ptr<HandOver> make_hand_over() override {
    return std::make_unique<EngineHandOver>(*this);
  }

 private:
  class EngineHandOver final : public HandOver {
   public:
    explicit EngineHandOver(CudaBackend& backend) : backend_(backend), inner_(backend.current()) {}
    void advance(const StepTables& tables) override {
      backend_.run("advance", [&] { inner_.advance(tables); });
    }
    void mark() override {
      backend_.current();
      inner_.mark();
    }
    int32_t chosen_at(int64_t position) override {
      backend_.current();
      return inner_.chosen_at(position);
    }

   private:
    CudaBackend& backend_;
    cuda::StepHandOver inner_;
  };

  // Every way in begins with this: the thread that calls may have another device as its current
  // one, and CUDA's calls speak of that.
  const cuda::Context& current() const {
    c_.make_current();
    return c_;
  }

  Buffer do_allocate(size_t n_bytes, std::string_view what) override {
    return c_.memory->allocate_device(n_bytes, what);
  }
  Buffer do_allocate_host(size_t n_bytes, std::string_view what) override {
    // Its windows are part of the plan: they are taken with the rest, not in the first step.
    current();
    if (!host_updates_) host_updates_ = std::make_unique<cuda::HostUpdates>(c_);
    return c_.memory->allocate_pinned(n_bytes, what);
  }
  uint64_t do_mark_updates() override {
    current();
    return host_updates_ ? host_updates_->mark() : 0;
  }
  void do_await_updates(uint64_t mark) override {
    current();
    if (host_updates_) host_updates_->await(mark);
  }
  void do_upload(Tensor dst, const void* host) override {
    if (dst.bytes() == 0) return;
    current();
    if (c_.memory->is_pinned(dst.data)) {
      do_sync();
      std::memcpy(dst.data, host, dst.bytes());
      return;
    }
    // Recorded, a copy would bring what its place holds at every replay: below that is refused.
    if (dst.bytes() <= kSmallBytes && !c_.capturing) {
      upload_small(dst, host);
      return;
    }
    NIBBLE_CUDA(cudaMemcpyAsync(dst.data, host, dst.bytes(), cudaMemcpyDefault, c_.stream));
    // The copy may still read `host`, which is the caller's to reuse.
    NIBBLE_CUDA(cudaStreamSynchronize(c_.stream));
  }
  // Tables of a decoding step and the like: from memory of our own the copy needs no waiting for,
  // which is 10 us of a token.
  void upload_small(Tensor dst, const void* host) {
    if (!small_.data()) {
      small_ = c_.memory->allocate_pinned(kSmallUploads * kSmallBytes, "small uploads");
    }
    if (small_next_ == kSmallUploads) {
      do_sync();  // all of them may be on their way
      small_next_ = 0;
    }
    std::byte* const from = small_.data() + small_next_++ * kSmallBytes;
    std::memcpy(from, host, dst.bytes());
    NIBBLE_CUDA(cudaMemcpyAsync(dst.data, from, dst.bytes(), cudaMemcpyDefault, c_.stream));
  }
  void do_download(void* host, Tensor src) override {
    current();
    if (src.bytes() > 0 && c_.memory->is_pinned(src.data)) {
      do_sync();  // what writes it may still run
      std::memcpy(host, src.data, src.bytes());
      return;
    }
    if (src.bytes() > 0) {
      NIBBLE_CUDA(cudaMemcpyAsync(host, src.data, src.bytes(), cudaMemcpyDefault, c_.stream));
    }
    do_sync();
    small_next_ = 0;
  }
  void do_copy(Tensor dst, Tensor src) override {
    const size_t e = dtype_bytes(dst.dtype), width = size_t(dst.inner()) * e;
    if (dst.numel() == 0) return;
    current();
    if (dst.contiguous() && src.contiguous()) {  // three times as fast as rows
      NIBBLE_CUDA(cudaMemcpyAsync(dst.data, src.data, dst.bytes(), cudaMemcpyDefault, c_.stream));
      return;
    }
    NIBBLE_CUDA(cudaMemcpy2DAsync(dst.data, size_t(dst.row_stride) * e, src.data,
                                  size_t(src.row_stride) * e, width, size_t(dst.dim(0)),
                                  cudaMemcpyDefault, c_.stream));
  }
  void do_sync() override { NIBBLE_CUDA(cudaStreamSynchronize(current().stream)); }
  void do_repeat(std::unique_ptr<Recording>& recording, const std::function<void()>& ops) override {
    current();
    cuda::repeat(c_, recording, ops);
  }
  template <class Launch>
  void run(const char* op, Launch&& launch) {
    current();
    launch();
    c_.finish(op);
  }

  DecodeWay do_decode_way(const DecodePlan& plan) const override {
    const std::string problem = decode_ == CudaOptions::Decode::launches
                                    ? std::string("a launch for each op was asked for")
                                    : cuda::one_launch_problem(current(), plan);
    if (problem.empty()) return {true, "one launch a token"};
    return {false,
            fmt::format("a launch for each op, replayed (not one launch a token: {})", problem)};
  }
  void do_decode_step(const DecodePlan& plan, const std::function<void()>& plain) override {
    const DecodeWay way = do_decode_way(plan);
    if (said_.insert(way.text).second) {
      log_info("decoding {} sequence{}: {}", plan.x.dim(0), plan.x.dim(0) == 1 ? "" : "s",
               way.text);
    }
    if (way.one_launch) {
      cuda::decode_in_one_launch(c_, plan);
    } else {
      plain();
    }
  }

  size_t do_packed_bytes(int64_t out, int64_t in) const override {
    return cuda::packed_bytes(out, in);
  }
  void do_pack_rows(const LinearWeight& w, int64_t row_begin, int64_t rows, const uint8_t* codes,
                    const uint8_t* scales) override {
    run("pack_rows", [&] { cuda::pack_rows(c_, w, row_begin, rows, codes, scales); });
  }
  void do_unpack_rows(const LinearWeight& w, int64_t row_begin, int64_t rows, uint8_t* codes,
                      uint8_t* scales) const override {
    cuda::unpack_rows(current(), w, row_begin, rows, codes, scales);
    c_.finish("unpack_rows");
  }
  void do_quantize_rows(const LinearWeight& w, int64_t row_begin, Tensor src,
                        ScaleRule rule) override {
    run("quantize_rows", [&] { cuda::quantize_rows(c_, w, row_begin, src, rule); });
  }

  void do_embed(Tensor out, Tensor table, Tensor ids) override {
    run("embed", [&] { cuda::embed(c_, out, table, ids); });
  }
  void do_rms_norm(Tensor out, Tensor rstd, Tensor x, Tensor w, double eps) override {
    run("rms_norm", [&] { cuda::rms_norm(c_, out, rstd, x, w, eps); });
  }
  void do_add_rms_norm(Tensor out, Tensor rstd, Tensor sum, Tensor a, Tensor b, Tensor w,
                       double eps) override {
    run("add_rms_norm", [&] { cuda::add_rms_norm(c_, out, rstd, sum, a, b, w, eps); });
  }
  void do_rope_table(Tensor table, Tensor positions, const RopeFrequencies& f) override {
    run("rope_table", [&] { cuda::rope_table(c_, table, positions, f); });
  }
  void do_add_bias(Tensor out, Tensor x, Tensor bias) override {
    run("add_bias", [&] { cuda::add_bias(c_, out, x, bias); });
  }
  void do_bias_rope(Tensor out, Tensor x, Tensor bias, Tensor table, StillPairs still) override {
    run("bias_rope", [&] { cuda::bias_rope(c_, out, x, bias, table, still); });
  }
  void do_rope(Tensor out, Tensor x, Tensor table, Rotation rotation) override {
    run("rope", [&] { cuda::rope(c_, out, x, table, rotation); });
  }
  void do_norm_rope(Tensor out, Tensor rstd, Tensor x, Tensor w, Tensor table,
                    double eps) override {
    if (x.cols() > cuda::kHeadWidth) {
      Backend::do_norm_rope(out, rstd, x, w, table, eps);
      return;
    }
    run("norm_rope", [&] { cuda::norm_rope(c_, out, rstd, x, w, table, eps); });
  }
  void do_kv_append(KvView kv, Tensor k, Tensor v, Tensor slots) override {
    run("kv_append", [&] { cuda::kv_append(c_, kv, k, v, slots); });
  }
  void do_split_heads(const HeadSlots& out, KvView kv, Tensor qkv, const HeadParams& params,
                      Tensor table, Tensor slots, double eps) override {
    bool done = false;
    run("split_heads", [&] {
      if (!params.q_norm) {
        done = cuda::split_rotated_heads(c_, out, kv, qkv, params, table, slots);
      } else if (out.q.cols() <= cuda::kHeadWidth) {
        cuda::split_heads(c_, out, kv, qkv, params, table, slots, eps);
        done = true;
      }
    });
    if (!done) Backend::do_split_heads(out, kv, qkv, params, table, slots, eps);
  }
  void do_attention(Tensor out, Tensor lse, Tensor q, KvView kv, Tensor sequences) override {
    run("attention", [&] { cuda::attention(c_, out, lse, q, kv, sequences); });
  }
  void do_split_heads_attention(Tensor out, Tensor lse, const HeadSlots& heads, KvView kv,
                                Tensor qkv, const HeadParams& params, Tensor table, Tensor slots,
                                Tensor sequences, double eps) override {
    bool done = false;
    run("split_heads_attention", [&] {
      done = cuda::split_heads_attention(c_, out, lse, heads, kv, qkv, params, table, slots,
                                         sequences, eps);
    });
    if (done) return;
    Backend::do_split_heads_attention(out, lse, heads, kv, qkv, params, table, slots, sequences,
                                      eps);
  }
  void do_swiglu(Tensor out, Tensor gate, Tensor up) override {
    run("swiglu", [&] { cuda::swiglu(c_, out, gate, up); });
  }
  void do_add(Tensor out, Tensor a, Tensor b) override {
    run("add", [&] { cuda::add(c_, out, a, b); });
  }
  void do_gather_rows(Tensor out, Tensor x, Tensor rows) override {
    run("gather_rows", [&] { cuda::gather_rows(c_, out, x, rows); });
  }
  void do_sample(Tensor out, Tensor logits, Tensor rows, Tensor context, Choice choice) override {
    run("sample", [&] { cuda::sample(c_, out, logits, rows, context, choice); });
  }
  void do_linear(Tensor out, Tensor x, const LinearWeight& w, Activations activations) override {
    run("linear", [&] { cuda::linear(c_, out, x, w, activations); });
  }
  void do_linear_swiglu(Tensor act, Tensor gate_up, Tensor x, const LinearWeight& w,
                        Activations activations) override {
    run("linear_swiglu", [&] { cuda::linear_swiglu(c_, act, gate_up, x, w, activations); });
  }

  void do_softmax_stats(Tensor stats, Tensor logits, Tensor targets, int64_t v_begin,
                        Accumulate accumulate) override {
    run("softmax_stats",
        [&] { cuda::softmax_stats(c_, stats, logits, targets, v_begin, accumulate); });
  }
  void do_cross_entropy(Tensor loss, Tensor stats, Tensor targets) override {
    run("cross_entropy", [&] { cuda::cross_entropy(c_, loss, stats, targets); });
  }
  void do_cross_entropy_back(Tensor dlogits, Tensor logits, Tensor stats, Tensor targets,
                             int64_t v_begin, double scale) override {
    run("cross_entropy_back",
        [&] { cuda::cross_entropy_back(c_, dlogits, logits, stats, targets, v_begin, scale); });
  }
  void do_divergence(Tensor loss, Tensor dlogits, Tensor logits, Tensor stats, Tensor teacher,
                     Tensor teacher_stats, double scale, Accumulate a) override {
    run("divergence", [&] {
      cuda::divergence(c_, loss, dlogits, logits, stats, teacher, teacher_stats, scale, a);
    });
  }
  void do_l1_loss(Tensor loss, Tensor dh, Tensor h, Tensor table, Tensor targets,
                  double scale) override {
    run("l1_loss", [&] { cuda::l1_loss(c_, loss, dh, h, table, targets, scale); });
  }
  void do_linear_dgrad(Tensor dx, Tensor dy, const LinearWeight& w, Accumulate a) override {
    run("linear_dgrad", [&] { cuda::linear_dgrad(c_, dx, dy, w, a); });
  }
  bool do_linear_wgrad_squares(Tensor dw, Tensor parts, Tensor dy, Tensor x,
                               const GradWrite& write) override {
    bool done = false;
    run("linear_wgrad", [&] { done = cuda::linear_wgrad_squares(c_, dw, parts, dy, x, write); });
    return done;
  }
  void do_linear_wgrad(Tensor dw, Tensor dy, Tensor x, const GradWrite& write) override {
    run("linear_wgrad", [&] { cuda::linear_wgrad(c_, dw, dy, x, write); });
  }
  void do_rms_norm_back(Tensor dx, Tensor dw, Tensor dy, Tensor x, Tensor rstd, Tensor w,
                        Tensor base, Accumulate a) override {
    run("rms_norm_back", [&] { cuda::rms_norm_back(c_, dx, dw, dy, x, rstd, w, base, a); });
  }
  void do_norm_rope_back(Tensor dx, Tensor dw, Tensor dy, Tensor x, Tensor rstd, Tensor w,
                         Tensor table, Accumulate a) override {
    if (x.cols() > cuda::kHeadWidth) {
      Backend::do_norm_rope_back(dx, dw, dy, x, rstd, w, table, a);
      return;
    }
    run("norm_rope_back", [&] { cuda::norm_rope_back(c_, dx, dw, dy, x, rstd, w, table, a); });
  }
  void do_bias_back(Tensor db, Tensor dy, Accumulate a) override {
    run("bias_back", [&] { cuda::bias_back(c_, db, dy, a); });
  }
  void do_attention_back(Tensor dq, Tensor dk, Tensor dv, Tensor dout, Tensor out, Tensor lse,
                         Tensor q, KvView kv, Tensor sequences) override {
    run("attention_back",
        [&] { cuda::attention_back(c_, dq, dk, dv, dout, out, lse, q, kv, sequences); });
  }
  void do_swiglu_back(Tensor dgate, Tensor dup, Tensor dout, Tensor gate, Tensor up) override {
    run("swiglu_back", [&] { cuda::swiglu_back(c_, dgate, dup, dout, gate, up); });
  }
  void do_embed_back(Tensor dtable, Tensor dx, Tensor ids, Tensor order,
                     const GradWrite& write) override {
    run("embed_back", [&] { cuda::embed_back(c_, dtable, dx, ids, order, write); });
  }
  void do_scatter_rows(Tensor out, Tensor x, Tensor rows) override {
    run("scatter_rows", [&] { cuda::scatter_rows(c_, out, x, rows); });
  }
  void do_sum_squares(Tensor out, Tensor x) override { do_sums_of_squares(out, {&x, 1}); }
  void do_sums_of_squares(Tensor out, std::span<const Tensor> x) override {
    run("sum_squares", [&] { cuda::sums_of_squares(c_, out, x); });
  }
  void do_adamw_step(Tensor master, Tensor grad, Tensor m, Tensor v, MomentFormat format,
                     int64_t begin, int64_t count, const AdamwStep& step,
                     const Requantize& requantize) override {
    const AdamwUpdate one{master, grad, m, v, format, begin, count, step, requantize};
    do_adamw_steps({&one, 1});
  }
  void do_adamw_steps(std::span<const AdamwUpdate> updates) override {
    run("adamw_step", [&] {
      std::vector<AdamwUpdate> here;
      for (const AdamwUpdate& u : updates) {
        const LinearWeight* const packed = u.requantize.weight;
        if (u.step.first != 0 || (packed && u.master.numel() % packed->in != 0)) {
          throw_usage("an optimizer step of a part of a parameter is not there on GPUs");
        }
        if (c_.memory->is_pinned(u.master.data)) {
          host_updates_->step(u);
        } else {
          here.push_back(u);
        }
      }
      cuda::adamw_steps(c_, here);
      if (c_.sync_each_op && host_updates_) host_updates_->await(host_updates_->mark());
    });
  }

  CudaDevice device_;
  CudaOptions::Decode decode_;
  cuda::Context c_;
  std::set<std::string> said_;  // of the ways steps of decoding are taken, in the log
  std::unique_ptr<cuda::HostUpdates> host_updates_;  // made with the first memory of that kind
  static constexpr size_t kSmallBytes = 16384, kSmallUploads = 16;
  Buffer small_;           // page-locked
  size_t small_next_ = 0;  // of kSmallUploads places
};

}  // namespace

std::unique_ptr<Backend> make_cuda_backend(const CudaOptions& options) {
  const CudaSupport support = cuda_support();
  if (support.devices.empty()) throw_device("--device cuda: {}", support.problem);
  for (const CudaDevice& d : support.devices) {
    if (d.index != options.device) continue;
    if (const std::string problem = cuda_problem(d); !problem.empty()) {
      throw_device("--device cuda: {}", problem);
    }
    if (options.require_native_fp4 && d.major < 10) {
      throw_device(
          "--require-native-fp4: {} (compute capability {}.{}) has no FP4 tensor cores, which "
          "need 10.0 (Blackwell) or later; without the flag W4A4 products are emulated exactly",
          d.name, d.major, d.minor);
    }
    return std::make_unique<CudaBackend>(d, options);
  }
  throw_device("CUDA device {} was asked for, but there are {}", options.device,
               support.devices.size());
}

}  // namespace nibble
