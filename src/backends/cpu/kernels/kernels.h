// SPDX-License-Identifier: MIT
// The bodies of the op set on the CPU; contracts are in backend/backend.h. Everything is computed
// in fp32 whatever the storage type, and no result depends on the thread count or on which rows
// happen to be computed together.
#pragma once
#include "backend/backend.h"
#include "backends/cpu/memory.h"
#include "core/thread_pool.h"

namespace nibble::cpu {

// What one backend object owns: threads and scratch.
struct Context {
  explicit Context(int threads) : pool(threads) {}
  ThreadPool pool;
  Workspace activations{"quantised activations of a linear layer"};
  Workspace thread_scratch{"per-thread scratch of the CPU backend"};
  Workspace stats{"converted weights and statistics"};
  Workspace gradients{"partial sums of gradients"};
  Workspace panels{"panels of a matrix product"};
  size_t stats_used = 0;  // by the FloatInputs and FloatOutputs of the op at hand
};

// Norm weights, tables and statistics may be stored in the activation type; kernels see floats.
// Floats are used where they lie, which is the usual case.
class FloatInput {
 public:
  FloatInput(Context& c, Tensor t);
  ~FloatInput() { c_.stats_used -= taken_; }
  FloatInput(const FloatInput&) = delete;
  FloatInput& operator=(const FloatInput&) = delete;
  const float* data() const { return data_; }

 private:
  Context& c_;
  const float* data_;
  size_t taken_ = 0;
};

class FloatOutput {
 public:
  FloatOutput(Context& c, Tensor t);
  ~FloatOutput() { c_.stats_used -= taken_; }
  FloatOutput(const FloatOutput&) = delete;
  FloatOutput& operator=(const FloatOutput&) = delete;
  float* data() const { return data_; }  // null for an empty tensor
  void finish();                         // writes to the tensor

 private:
  Context& c_;
  Tensor target_;
  float* data_;
  size_t taken_ = 0;
};

// Runs body(begin, end, thread) over rows, on one thread when all rows together are less than
// what waking the others costs (a few microseconds, about 16k elements).
template <class Body>
void for_rows(ThreadPool& pool, int64_t rows, int64_t elements_per_row, Body&& body) {
  constexpr int64_t kGrainElements = 1 << 14;
  const int64_t grain = kGrainElements / (elements_per_row > 0 ? elements_per_row : 1);
  pool.parallel_for(rows, grain > 1 ? grain : 1, body);
}

void copy_strided(Tensor dst, Tensor src);
void embed(ThreadPool& pool, Tensor out, Tensor table, Tensor ids);
void gather_rows(ThreadPool& pool, Tensor out, Tensor x, Tensor rows);
void kv_append(ThreadPool& pool, KvView kv, Tensor k, Tensor v, Tensor slots);
void add(ThreadPool& pool, Tensor out, Tensor a, Tensor b);
void swiglu(ThreadPool& pool, Tensor out, Tensor gate, Tensor up);

void rms_norm(Context& c, Tensor out, Tensor rstd, Tensor x, Tensor w, double eps);
void add_rms_norm(Context& c, Tensor out, Tensor rstd, Tensor sum, Tensor a, Tensor b, Tensor w,
                  double eps);
void rope_table(Context& c, Tensor table, Tensor positions, const RopeFrequencies& frequencies);
void rope(Context& c, Tensor out, Tensor x, Tensor table, Rotation rotation);
void norm_rope(Context& c, Tensor out, Tensor rstd, Tensor x, Tensor w, Tensor table, double eps);
// kernels/bias.cpp
void add_bias(Context& c, Tensor out, Tensor x, Tensor bias);
void bias_rope(Context& c, Tensor out, Tensor x, Tensor bias, Tensor table, StillPairs still);
void bias_back(Context& c, Tensor db, Tensor dy, Accumulate accumulate);

void attention(Context& c, Tensor out, Tensor lse, Tensor q, KvView kv, Tensor sequences);

void argmax(ThreadPool& pool, Tensor out, Tensor logits);
void sample(ThreadPool& pool, Tensor out, Tensor logits, Tensor rows, Tensor context,
            Choice choice);

// Loss: kernels/loss.cpp.
void softmax_stats(Context& c, Tensor stats, Tensor logits, Tensor targets, int64_t v_begin,
                   Accumulate accumulate);
void cross_entropy(Context& c, Tensor loss, Tensor stats, Tensor targets);
void cross_entropy_back(Context& c, Tensor dlogits, Tensor logits, Tensor stats, Tensor targets,
                        int64_t v_begin, double scale);
// kernels/divergence.cpp
void divergence(Context& c, Tensor loss, Tensor dlogits, Tensor logits, Tensor stats,
                Tensor teacher, Tensor teacher_stats, double scale, Accumulate accumulate);
void l1_loss(Context& c, Tensor loss, Tensor dh, Tensor h, Tensor table, Tensor targets,
             double scale);

void linear(Context& c, Tensor out, Tensor x, const LinearWeight& w, Activations activations);
// kernels/linear_back.cpp
void linear_dgrad(Context& c, Tensor dx, Tensor dy, const LinearWeight& w, Accumulate accumulate);
void linear_wgrad(Context& c, Tensor dw, Tensor dy, Tensor x, const GradWrite& write);
void quantize_rows(Context& c, const LinearWeight& w, int64_t row_begin, Tensor src,
                   ScaleRule rule);

// kernels/norm_back.cpp, attention_back.cpp, elementwise_back.cpp
void rms_norm_back(Context& c, Tensor dx, Tensor dw, Tensor dy, Tensor x, Tensor rstd, Tensor w,
                   Tensor base, Accumulate accumulate_dw);
void norm_rope_back(Context& c, Tensor dx, Tensor dw, Tensor dy, Tensor x, Tensor rstd, Tensor w,
                    Tensor table, Accumulate accumulate_dw);
void attention_back(Context& c, Tensor dq, Tensor dk, Tensor dv, Tensor dout, Tensor out,
                    Tensor lse, Tensor q, KvView kv, Tensor sequences);
void swiglu_back(ThreadPool& pool, Tensor dgate, Tensor dup, Tensor dout, Tensor gate, Tensor up);
void embed_back(Context& c, Tensor dtable, Tensor dx, Tensor ids, Tensor order,
                const GradWrite& write);
void scatter_rows(ThreadPool& pool, Tensor out, Tensor x, Tensor rows);

// kernels/optimizer.cpp
void sum_squares(Context& c, Tensor out, Tensor x);
void adamw_step(Context& c, Tensor master, Tensor grad, Tensor m, Tensor v, MomentFormat format,
                int64_t begin, int64_t count, const AdamwStep& step, const Requantize& requantize);

// For tests: exp of the kernels, element by element.
void exp_floats(const float* x, float* out, int64_t n);
// For tests: the storage conversions of the kernels; one of the two types is f32.
void convert_elements(Tensor out, Tensor x);

}  // namespace nibble::cpu
