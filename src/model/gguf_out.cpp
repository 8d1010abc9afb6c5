// SPDX-License-Identifier: MIT
// A model in the words and the order of a GGUF.
#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "model/gguf_model.h"
#include "model/rope.h"

namespace nibble {
namespace {

// The reading side asks for a family by the architecture's name; here what it has says which it is.
std::string architecture_of(const Config& c) {
  return c.qk_norm ? "qwen3" : c.qkv_bias ? "qwen2" : "llama";
}

// Row `row` of the file is this row of Hugging Face's: a head's halves go by turns.
int64_t row_apart(int64_t row, int64_t head_width) {
  const int64_t head = row / head_width, inside = row % head_width;
  return head * head_width + inside % 2 * (head_width / 2) + inside / 2;
}

bool has_rotated_rows(std::string_view name) {
  return name.find(".q_proj.") != name.npos || name.find(".k_proj.") != name.npos;
}

class GgufOrder final : public TensorSource {
 public:
  GgufOrder(const TensorSource& base, int64_t head_width)
      : TensorSource(Virtual{}, base.format(), base.tensors(), base.metadata()),
        base_(base),
        head_width_(head_width) {}

  void read(const TensorInfo& tensor, uint64_t offset, std::span<std::byte> out) const override {
    const TensorInfo& from = base_.at(tensor.name);
    const int64_t rows = tensor.shape.empty() ? 0 : tensor.shape[0];
    // A global scale has one row, or no dimension at all, and stays where it is.
    if (!has_rotated_rows(tensor.name) || rows == 0 || rows % head_width_ != 0) {
      return base_.read(from, offset, out);
    }
    const uint64_t row_bytes = tensor.n_bytes / uint64_t(rows);
    while (!out.empty()) {
      const uint64_t row = offset / row_bytes, inside = offset % row_bytes;
      const size_t n = std::min<size_t>(out.size(), size_t(row_bytes - inside));
      const auto at = uint64_t(row_apart(int64_t(row), head_width_));
      base_.read(from, at * row_bytes + inside, out.first(n));
      out = out.subspan(n);
      offset += n;
    }
  }
  bool grouped() const override { return base_.grouped(); }
  const std::vector<InputFile>& files() const override { return base_.files(); }

 private:
  const TensorSource& base_;
  int64_t head_width_;
};

void add_rope(const Config& c, const std::string& arch, GgufMetadata& m) {
  const RopeSpec& rope = c.rope;
  m.set_f32(arch + ".rope.freq_base", rope.theta);
  m.set_u32(arch + ".rope.dimension_count", uint64_t(c.D));
  if (rope.kind == RopeKind::standard) return;
  if (rope.kind == RopeKind::llama3) {  // a tensor there; the numbers it came from are ours
    m.set_f32("nibble.rope.factor", rope.factor);
    m.set_f32("nibble.rope.low_freq_factor", rope.low_freq_factor);
    m.set_f32("nibble.rope.high_freq_factor", rope.high_freq_factor);
    m.set_f32("nibble.rope.original_positions", rope.original_positions);
    return;
  }
  m.set_text(arch + ".rope.scaling.type", std::string(rope_kind_name(rope.kind)));
  m.set_f32(arch + ".rope.scaling.factor", rope.factor);
  if (rope.kind != RopeKind::yarn) return;
  const double usual = yarn_attention_factor(rope.factor, 0, 0);
  if (!rope.truncate || std::abs(rope.attention_factor - usual) > 1e-6 * usual) {
    throw_format(
        "a GGUF has no words for this model's yarn ('truncate' false, or an 'attention_factor' of "
        "{} where {} is the usual): --to hf keeps it",
        rope.attention_factor, usual);
  }
  m.set_u32(arch + ".rope.scaling.original_context_length", uint64_t(rope.original_positions));
  m.set_f32(arch + ".rope.scaling.yarn_beta_fast", rope.beta_fast);
  m.set_f32(arch + ".rope.scaling.yarn_beta_slow", rope.beta_slow);
}

}  // namespace

std::unique_ptr<TensorSource> in_gguf_order(const TensorSource& source, const Config& c) {
  // Heads of norms or biases belong to families whose rows stay as they are.
  const bool by_turns = architecture_of(c) == "llama";
  return std::make_unique<GgufOrder>(source, by_turns ? c.D : INT64_MAX);
}

bool gguf_applies_global_scale(const Config& c, std::string_view name) {
  return architecture_of(c) != "qwen2" || name.find(".mlp.") == name.npos;
}

GgufMetadata gguf_model_metadata(const Config& c) {
  GgufMetadata m;
  const std::string arch = architecture_of(c);
  const auto size = [&](const char* name, int64_t n) { m.set_u32(arch + "." + name, uint64_t(n)); };
  m.set_text("general.architecture", arch);
  m.set_text("general.type", "model");
  m.set_u32("general.quantization_version", 2);
  size("block_count", c.L);
  size("context_length", c.max_positions);
  size("embedding_length", c.C);
  size("feed_forward_length", c.F);
  size("vocab_size", c.V);
  size("attention.head_count", c.Hq);
  size("attention.head_count_kv", c.Hkv);
  size("attention.key_length", c.D);
  size("attention.value_length", c.D);
  m.set_f32(arch + ".attention.layer_norm_rms_epsilon", c.rms_eps);
  add_rope(c, arch, m);
  return m;
}

std::vector<float> gguf_rope_divisors(const Config& c) {
  if (c.rope.kind != RopeKind::llama3) return {};
  RopeSpec plain;
  plain.theta = c.rope.theta;
  const RopeFrequencies before = rope_frequencies(plain, c.D),
                        after = rope_frequencies(c.rope, c.D);
  std::vector<float> divisors;
  for (int64_t i = 0; i < c.D / 2; ++i) {
    divisors.push_back(float(before.turns[size_t(i)] / after.turns[size_t(i)]));
  }
  return divisors;
}

}  // namespace nibble
