// SPDX-License-Identifier: MIT
// The public half of every op refuses arguments that do not fit, and names the op.
#include <gtest/gtest.h>

#include <functional>

#include "backend/forwarding_backend.h"
#include "backend/null_backend.h"
#include "support/ref_backend.h"

namespace nibble::test {
namespace {

Tensor f32(std::initializer_list<int64_t> shape) { return make_tensor(nullptr, DType::f32, shape); }
Tensor i32(std::initializer_list<int64_t> shape) { return make_tensor(nullptr, DType::i32, shape); }
LinearWeight dense(int64_t out, int64_t in) {
  LinearWeight w;
  w.out = out;
  w.in = in;
  w.dense = f32({out, in});
  return w;
}
LinearWeight packed(const Backend& b, int64_t out, int64_t in) {
  LinearWeight w;
  w.out = out;
  w.in = in;
  w.packed = make_tensor(nullptr, DType::u8, {int64_t(b.packed_bytes(out, in))});
  return w;
}

// One token each of two sequences through two layers: 16 wide, two heads and one of keys, 8 wide.
DecodePlan small_plan() {
  DecodePlan p;
  p.ids = p.positions = p.slots = i32({2});
  p.sequences = i32({2, 4});
  p.embed = f32({32, 16});
  const DecodeLayer layer{
      f32({16}), dense(32, 16), {f32({8}), f32({8})}, dense(16, 16),
      f32({16}), dense(48, 16), dense(16, 24),        {f32({9, 1, 8}), f32({9, 1, 8})}};
  p.layers = {layer, layer};
  p.final_norm = f32({16});
  p.head = dense(32, 16);
  p.x = f32({2, 16}), p.rope = f32({2, 8}), p.logits = f32({2, 32});
  p.q_heads = 2, p.kv_heads = 1, p.head_width = 8;
  p.frequencies.turns.resize(4);
  return p;
}

// A call of adamw_step that is right but for what `change` does to it.
struct StepCall {
  Tensor master = f32({4, 64}), grad = f32({4, 64});
  int64_t moment_bytes_off = 0, begin = 0, count = 256, row_offset = 0;
  AdamwStep step;
  bool packed = true;

  void operator()(Backend& b) const {
    const auto moment = [&](int64_t off) {
      const auto bytes = int64_t(moment_bytes(MomentFormat::int8, master.numel()));
      return make_tensor(nullptr, DType::u8, {bytes + off});
    };
    LinearWeight w;
    w.out = 5;
    w.in = 64;
    w.packed = make_tensor(nullptr, DType::u8, {int64_t(b.packed_bytes(5, 64))});
    const Requantize rq{packed ? &w : nullptr, row_offset, ScaleRule::four_over_six};
    b.adamw_step(master, grad, moment(0), moment(moment_bytes_off), MomentFormat::int8, begin,
                 count, step, rq);
  }
};
std::function<void(Backend&)> step_with(const std::function<void(StepCall&)>& change) {
  StepCall c;
  change(c);
  return c;
}

struct BadCall {
  std::string op, why;
  std::function<void(Backend&)> call;
};

// Each call is right but for one thing.
std::vector<BadCall> bad_calls() {
  const Tensor none;
  return {
      {"embed", "widths differ",
       [](Backend& b) {
         b.embed(f32({3, 8}), f32({9, 4}), i32({3}));
       }},
      {"embed", "one id too few",
       [](Backend& b) {
         b.embed(f32({3, 8}), f32({9, 8}), i32({2}));
       }},
      {"embed", "ids are floats",
       [](Backend& b) {
         b.embed(f32({3, 8}), f32({9, 8}), f32({3}));
       }},
      {"rms_norm", "weight width",
       [=](Backend& b) {
         b.rms_norm(f32({3, 8}), none, f32({3, 8}), f32({4}), 1e-6);
       }},
      {"rms_norm", "rstd length",
       [](Backend& b) {
         b.rms_norm(f32({3, 8}), f32({2}), f32({3, 8}), f32({8}), 1e-6);
       }},
      {"rms_norm", "shapes differ",
       [=](Backend& b) {
         b.rms_norm(f32({3, 8}), none, f32({2, 8}), f32({8}), 1e-6);
       }},
      {"add_rms_norm", "addends differ",
       [=](Backend& b) {
         b.add_rms_norm(f32({3, 8}), none, f32({3, 8}), f32({3, 8}), f32({2, 8}), f32({8}), 1e-6);
       }},
      {"rope_table", "odd width",
       [](Backend& b) {
         b.rope_table(f32({3, 7}), i32({3}), {std::vector<double>(3, 1.0)});
       }},
      {"rope", "table width",
       [](Backend& b) {
         b.rope(f32({3, 2, 8}), f32({3, 2, 8}), f32({3, 6}), Rotation::forward);
       }},
      {"norm_rope", "weight width",
       [=](Backend& b) {
         b.norm_rope(f32({3, 2, 8}), none, f32({3, 2, 8}), f32({16}), f32({3, 8}), 1e-6);
       }},
      {"rope_table", "a frequency too few",
       [](Backend& b) {
         b.rope_table(f32({3, 8}), i32({3}), {std::vector<double>(3, 1.0)});
       }},
      {"add_bias", "one bias for each head",
       [](Backend& b) {
         b.add_bias(f32({3, 2, 8}), f32({3, 2, 8}), f32({8}));
       }},
      {"bias_rope", "width of the bias",
       [](Backend& b) {
         b.bias_rope(f32({3, 2, 8}), f32({3, 2, 8}), f32({8}), f32({3, 8}), {});
       }},
      {"bias_rope", "table width",
       [](Backend& b) {
         b.bias_rope(f32({3, 2, 8}), f32({3, 2, 8}), f32({16}), f32({3, 6}), {});
       }},
      {"bias_back", "width of the gradient",
       [](Backend& b) {
         b.bias_back(f32({7}), f32({3, 8}), Accumulate::no);
       }},
      {"split_heads", "norms and a bias",
       [=](Backend& b) {
         b.split_heads({f32({3, 2, 8}), none, f32({3, 1, 8}), none},
                       {f32({9, 1, 8}), f32({9, 1, 8})}, f32({3, 32}),
                       {f32({8}), f32({8}), f32({32}), {}}, f32({3, 8}), i32({3}), 1e-6);
       }},
      {"split_heads", "statistics of norms that there are not",
       [=](Backend& b) {
         b.split_heads({f32({3, 2, 8}), f32({6}), f32({3, 1, 8}), f32({3})},
                       {f32({9, 1, 8}), f32({9, 1, 8})}, f32({3, 32}), {}, f32({3, 8}), i32({3}),
                       1e-6);
       }},
      {"kv_append", "heads differ",
       [](Backend& b) {
         b.kv_append({f32({9, 2, 8}), f32({9, 2, 8})}, f32({3, 4, 8}), f32({3, 4, 8}), i32({3}));
       }},
      {"attention", "heads do not divide",
       [=](Backend& b) {
         b.attention(f32({3, 3, 8}), none, f32({3, 3, 8}), {f32({9, 2, 8}), f32({9, 2, 8})},
                     i32({1, 4}));
       }},
      {"attention", "sequence table",
       [=](Backend& b) {
         b.attention(f32({3, 4, 8}), none, f32({3, 4, 8}), {f32({9, 2, 8}), f32({9, 2, 8})},
                     i32({1, 3}));
       }},
      {"swiglu", "widths differ",
       [](Backend& b) {
         b.swiglu(f32({3, 8}), f32({3, 8}), f32({3, 4}));
       }},
      {"add", "shapes differ",
       [](Backend& b) {
         b.add(f32({3, 8}), f32({3, 8}), f32({4, 8}));
       }},
      {"gather_rows", "ids too few",
       [](Backend& b) {
         b.gather_rows(f32({2, 8}), f32({3, 8}), i32({3}));
       }},
      {"sample", "one id per row",
       [](Backend& b) {
         b.sample(i32({2}), f32({3, 8}), i32({3, 16}), {}, Choice::any);
       }},
      {"sample", "one row of options per row",
       [](Backend& b) {
         b.sample(i32({3}), f32({3, 8}), i32({2, 16}), {}, Choice::any);
       }},
      {"sample", "options of their own width",
       [](Backend& b) {
         b.sample(i32({3}), f32({3, 8}), i32({3, 15}), {}, Choice::any);
       }},
      {"sample", "a vocabulary whose weights sum up in 64 bits",
       [](Backend& b) {
         b.sample(i32({1}), f32({1, (1 << 20) + 1}), i32({1, 16}), {}, Choice::any);
       }},
      {"decode_step", "two tokens of one sequence",
       [](Backend& b) {
         DecodePlan p = small_plan();
         p.sequences = i32({1, 4});
         b.decode_step(p, [] {});
       }},
      {"decode_step", "a cache of other heads",
       [](Backend& b) {
         DecodePlan p = small_plan();
         p.layers[1].kv = {f32({9, 4, 8}), f32({9, 4, 8})};
         b.decode_step(p, [] {});
       }},
      {"decode_step", "a projection too narrow",
       [](Backend& b) {
         DecodePlan p = small_plan();
         p.layers[0].attn_out = dense(16, 8);
         b.decode_step(p, [] {});
       }},
      {"decode_step", "a bias too short",
       [](Backend& b) {
         DecodePlan p = small_plan();
         p.layers[1].heads = {{}, {}, f32({24}), {}};
         b.decode_step(p, [] {});
       }},
      {"linear", "input width",
       [](Backend& b) {
         b.linear(f32({3, 5}), f32({3, 7}), dense(5, 8), Activations::none);
       }},
      {"linear", "output width",
       [](Backend& b) {
         b.linear(f32({3, 4}), f32({3, 8}), dense(5, 8), Activations::none);
       }},
      {"linear", "int8 needs packed weights",
       [](Backend& b) {
         b.linear(f32({3, 5}), f32({3, 8}), dense(5, 8), Activations::int8);
       }},
      {"linear", "nvfp4 needs blocks of 16",
       [](Backend& b) {
         b.linear(f32({3, 5}), f32({3, 8}), dense(5, 8), Activations::nvfp4);
       }},
      {"linear", "neither dense nor packed",
       [](Backend& b) {
         LinearWeight w = dense(5, 8);
         w.dense = {};
         b.linear(f32({3, 5}), f32({3, 8}), w, Activations::none);
       }},
      {"linear", "row scale length",
       [](Backend& b) {
         LinearWeight w = dense(5, 8);
         w.row_scale = f32({4});
         b.linear(f32({3, 5}), f32({3, 8}), w, Activations::none);
       }},
      {"pack_rows", "rows past the end",
       [](Backend& b) {
         const std::vector<uint8_t> codes(16), scales(2);
         b.pack_rows(packed(b, 4, 16), 3, 2, codes, scales);
       }},
      {"quantize_rows", "rows past the end",
       [](Backend& b) {
         b.quantize_rows(packed(b, 4, 16), 3, f32({2, 16}), ScaleRule::absmax);
       }},
      {"quantize_rows", "width of the source",
       [](Backend& b) {
         b.quantize_rows(packed(b, 4, 32), 0, f32({2, 16}), ScaleRule::absmax);
       }},
      {"quantize_rows", "a dense weight",
       [](Backend& b) {
         b.quantize_rows(dense(4, 16), 0, f32({2, 16}), ScaleRule::absmax);
       }},
      {"rows_of", "not at a panel", [](Backend& b) { b.rows_of(packed(b, 130, 16), 65, 2); }},
      {"rows_of", "rows past the end", [](Backend& b) { b.rows_of(dense(130, 16), 128, 3); }},
      {"linear_dgrad", "output width",
       [](Backend& b) {
         b.linear_dgrad(f32({3, 8}), f32({3, 4}), dense(5, 8), Accumulate::no);
       }},
      {"linear_dgrad", "input width",
       [](Backend& b) {
         b.linear_dgrad(f32({3, 7}), f32({3, 5}), dense(5, 8), Accumulate::no);
       }},
      {"linear_dgrad", "tokens differ",
       [](Backend& b) {
         b.linear_dgrad(f32({2, 8}), f32({3, 5}), dense(5, 8), Accumulate::no);
       }},
      {"linear_dgrad", "row scale length",
       [](Backend& b) {
         LinearWeight w = dense(5, 8);
         w.row_scale = f32({8});
         b.linear_dgrad(f32({3, 8}), f32({3, 5}), w, Accumulate::no);
       }},
      {"linear_wgrad", "tokens differ",
       [](Backend& b) {
         b.linear_wgrad(f32({5, 8}), f32({3, 5}), f32({2, 8}), {});
       }},
      {"linear_wgrad", "shape of the gradient",
       [](Backend& b) {
         b.linear_wgrad(f32({8, 5}), f32({3, 5}), f32({3, 8}), {});
       }},
      {"linear_wgrad", "strided gradient",
       [](Backend& b) {
         b.linear_wgrad(f32({5, 9}).columns(0, 8), f32({3, 5}), f32({3, 8}), {});
       }},
      {"softmax_stats", "three numbers per row",
       [](Backend& b) {
         b.softmax_stats(f32({3, 2}), f32({3, 8}), i32({3}), 0, Accumulate::no);
       }},
      {"softmax_stats", "one target per row",
       [](Backend& b) {
         b.softmax_stats(f32({3, 3}), f32({3, 8}), i32({2}), 0, Accumulate::no);
       }},
      {"softmax_stats", "negative first column",
       [](Backend& b) {
         b.softmax_stats(f32({3, 3}), f32({3, 8}), i32({3}), -1, Accumulate::no);
       }},
      {"cross_entropy", "one target per row",
       [](Backend& b) {
         b.cross_entropy(f32({3}), f32({3, 3}), i32({2}));
       }},
      {"cross_entropy", "logits instead of stats",
       [](Backend& b) {
         b.cross_entropy(f32({3}), f32({3, 8}), i32({3}));
       }},
      {"cross_entropy_back", "widths differ",
       [](Backend& b) {
         b.cross_entropy_back(f32({3, 7}), f32({3, 8}), f32({3, 3}), i32({3}), 0, 1.0);
       }},
      {"cross_entropy_back", "in place with another type",
       [](Backend& b) {
         float memory[24] = {};
         b.cross_entropy_back(make_tensor(memory, DType::bf16, {3, 8}),
                              make_tensor(memory, DType::f32, {3, 8}), f32({3, 3}), i32({3}), 0,
                              1.0);
       }},
      {"divergence", "the teacher's vocabulary is another",
       [](Backend& b) {
         b.divergence(f32({3}), {}, f32({3, 8}), f32({3, 3}), f32({3, 7}), f32({3, 3}), 1.0,
                      Accumulate::no);
       }},
      {"divergence", "one loss per row",
       [](Backend& b) {
         b.divergence(f32({2}), {}, f32({3, 8}), f32({3, 3}), f32({3, 8}), f32({3, 3}), 1.0,
                      Accumulate::no);
       }},
      {"divergence", "statistics of two numbers",
       [](Backend& b) {
         b.divergence(f32({3}), {}, f32({3, 8}), f32({3, 3}), f32({3, 8}), f32({3, 2}), 1.0,
                      Accumulate::no);
       }},
      {"divergence", "width of the gradient",
       [](Backend& b) {
         b.divergence(f32({3}), f32({3, 7}), f32({3, 8}), f32({3, 3}), f32({3, 8}), f32({3, 3}),
                      1.0, Accumulate::no);
       }},
      {"divergence", "the gradient over the teacher's logits",
       [](Backend& b) {
         float memory[24] = {};
         const Tensor teacher = make_tensor(memory, DType::f32, {3, 8});
         b.divergence(f32({3}), teacher, f32({3, 8}), f32({3, 3}), teacher, f32({3, 3}), 1.0,
                      Accumulate::no);
       }},
      {"l1_loss", "table width",
       [](Backend& b) {
         b.l1_loss(f32({3}), f32({3, 8}), f32({3, 8}), f32({9, 7}), i32({3}), 1.0);
       }},
      {"l1_loss", "one loss per row",
       [](Backend& b) {
         b.l1_loss(f32({2}), f32({3, 8}), f32({3, 8}), f32({9, 8}), i32({3}), 1.0);
       }},
      {"rms_norm_back", "shapes differ",
       [=](Backend& b) {
         b.rms_norm_back(f32({3, 8}), none, f32({2, 8}), f32({3, 8}), f32({3}), f32({8}), none,
                         Accumulate::no);
       }},
      {"rms_norm_back", "rstd is missing",
       [=](Backend& b) {
         b.rms_norm_back(f32({3, 8}), none, f32({3, 8}), f32({3, 8}), none, f32({8}), none,
                         Accumulate::no);
       }},
      {"rms_norm_back", "width of dw",
       [=](Backend& b) {
         b.rms_norm_back(f32({3, 8}), f32({7}), f32({3, 8}), f32({3, 8}), f32({3}), f32({8}), none,
                         Accumulate::no);
       }},
      {"rms_norm_back", "rows of base",
       [=](Backend& b) {
         b.rms_norm_back(f32({3, 8}), none, f32({3, 8}), f32({3, 8}), f32({3}), f32({8}),
                         f32({2, 8}), Accumulate::no);
       }},
      {"norm_rope_back", "table width",
       [=](Backend& b) {
         b.norm_rope_back(f32({3, 2, 8}), none, f32({3, 2, 8}), f32({3, 2, 8}), f32({6}), f32({8}),
                          f32({3, 6}), Accumulate::no);
       }},
      {"norm_rope_back", "rstd per head",
       [=](Backend& b) {
         b.norm_rope_back(f32({3, 2, 8}), none, f32({3, 2, 8}), f32({3, 2, 8}), f32({3}), f32({8}),
                          f32({3, 8}), Accumulate::no);
       }},
      {"attention_back", "heads do not divide",
       [](Backend& b) {
         b.attention_back(f32({3, 3, 8}), f32({3, 2, 8}), f32({3, 2, 8}), f32({3, 3, 8}),
                          f32({3, 3, 8}), f32({3, 3}), f32({3, 3, 8}),
                          {f32({3, 2, 8}), f32({3, 2, 8})}, i32({1, 4}));
       }},
      {"attention_back", "lse is missing",
       [=](Backend& b) {
         b.attention_back(f32({3, 4, 8}), f32({3, 2, 8}), f32({3, 2, 8}), f32({3, 4, 8}),
                          f32({3, 4, 8}), none, f32({3, 4, 8}), {f32({3, 2, 8}), f32({3, 2, 8})},
                          i32({1, 4}));
       }},
      {"attention_back", "keys of a cache",
       [](Backend& b) {
         b.attention_back(f32({3, 4, 8}), f32({9, 2, 8}), f32({9, 2, 8}), f32({3, 4, 8}),
                          f32({3, 4, 8}), f32({3, 4}), f32({3, 4, 8}),
                          {f32({9, 2, 8}), f32({9, 2, 8})}, i32({1, 4}));
       }},
      {"swiglu_back", "widths differ",
       [](Backend& b) {
         b.swiglu_back(f32({3, 8}), f32({3, 8}), f32({3, 8}), f32({3, 4}), f32({3, 8}));
       }},
      {"embed_back", "one row number per id",
       [](Backend& b) {
         b.embed_back(f32({9, 8}), f32({3, 8}), i32({3}), i32({2}), {});
       }},
      {"embed_back", "integer gradient",
       [](Backend& b) {
         b.embed_back(i32({9, 8}), f32({3, 8}), i32({3}), i32({3}), {});
       }},
      {"scatter_rows", "more rows than there are",
       [](Backend& b) {
         b.scatter_rows(f32({2, 8}), f32({3, 8}), i32({3}));
       }},
      {"sum_squares", "f32 result", [](Backend& b) { b.sum_squares(f32({1}), f32({9})); }},
      {"sum_squares", "strided",
       [](Backend& b) {
         b.sum_squares(make_tensor(nullptr, DType::f64, {1}), f32({2, 4}).columns(0, 2));
       }},
      {"adamw_step", "sizes differ", step_with([](StepCall& c) {
         c.grad = f32({4, 63});
       })},
      {"adamw_step", "master of f16", step_with([](StepCall& c) {
         c.master = make_tensor(nullptr, DType::f16, {4, 64});
       })},
      {"adamw_step", "size of v", step_with([](StepCall& c) { c.moment_bytes_off = -1; })},
      {"adamw_step", "begins inside a block", step_with([](StepCall& c) {
         c.master = c.grad = f32({4, 128});
         c.begin = 128;
         c.packed = false;
       })},
      {"adamw_step", "ends inside a block", step_with([](StepCall& c) { c.count = 128; })},
      {"adamw_step", "past the end", step_with([](StepCall& c) { c.count = 512; })},
      {"adamw_step", "rows past the weight's", step_with([](StepCall& c) { c.row_offset = 2; })},
      {"adamw_step", "a part inside a block", step_with([](StepCall& c) { c.step.first = 128; })},
      {"adamw_step", "a part before the parameter",
       step_with([](StepCall& c) { c.step.first = -256; })},
      {"adamw_step", "a part past the weight's rows",
       step_with([](StepCall& c) { c.step.first = 512; })},
      {"adamw_step", "negative row", step_with([](StepCall& c) { c.row_offset = -1; })},
      {"adamw_step", "nothing packed to update from", step_with([](StepCall& c) {
         c.packed = false;
         c.step.from = UpdateFrom::quantised;
       })},
      {"copy", "types differ", [](Backend& b) { b.copy(f32({3}), i32({3})); }},
      {"upload", "strided",
       [](Backend& b) {
         const float x[4] = {};
         b.upload(f32({2, 4}).columns(0, 2), x);
       }},
  };
}

TEST(Validation, TheStepThatBadOnesAreMadeFromIsAccepted) {
  RefBackend<double> layout;
  NullBackend backend(layout);
  StepCall{}(backend);
  EXPECT_EQ(backend.calls(), 1);
}

TEST(Validation, WrongArgumentsAreRefusedByName) {
  RefBackend<double> layout;
  NullBackend backend(layout);
  for (const BadCall& c : bad_calls()) {
    try {
      c.call(backend);
      ADD_FAILURE() << c.op << ": " << c.why << " was accepted";
    } catch (const InternalError& e) {
      EXPECT_NE(std::string(e.what()).find("op " + c.op + ":"), std::string::npos) << e.what();
    }
  }
  EXPECT_EQ(backend.calls(), 0);  // nothing reached the backend's own half
}

class SmallDevice final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
  uint64_t available_memory() const override { return 1000; }
};

TEST(Validation, MoreMemoryThanThereIsSaysBothFigures) {
  RefBackend<double> inner;
  SmallDevice device(inner);
  EXPECT_NO_THROW(device.allocate(1000, "weights"));
  try {
    device.allocate(1001, "weights");
    FAIL();
  } catch (const DeviceError& e) {
    EXPECT_EQ(int(e.code()), 4);
    EXPECT_NE(std::string(e.what()).find("weights"), std::string::npos);
    EXPECT_NE(std::string(e.what()).find("1000 B"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace nibble::test
