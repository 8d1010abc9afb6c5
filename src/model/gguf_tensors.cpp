// SPDX-License-Identifier: MIT
// Tensors of a GGUF under Hugging Face names.
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <unordered_set>
#include <utility>

#include "core/error.h"
#include "formats/gguf/block_types.h"
#include "model/config.h"
#include "model/gguf_model.h"
#include "model/params.h"
#include "model/same_matrix.h"

namespace nibble {
namespace {

struct Name {
  std::string_view gguf, hugging_face;
};
constexpr Name kOutside[] = {{"token_embd.weight", kEmbedName},
                             {"output_norm.weight", "model.norm.weight"},
                             {"output.weight", kHeadName}};
constexpr Name kInBlock[] = {
    {"attn_norm", "input_layernorm"},    {"attn_q", "self_attn.q_proj"},
    {"attn_k", "self_attn.k_proj"},      {"attn_v", "self_attn.v_proj"},
    {"attn_output", "self_attn.o_proj"}, {"attn_q_norm", "self_attn.q_norm"},
    {"attn_k_norm", "self_attn.k_norm"}, {"ffn_norm", "post_attention_layernorm"},
    {"ffn_gate", "mlp.gate_proj"},       {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"}};
// Frequencies of the rotation, which config.json gives in its own words.
constexpr std::string_view kFrequencies = "rope_freqs.weight";

// Where gguf_pairs_adjacent(): the file's row 2i + half is Hugging Face's row half * D/2 + i.
int64_t interleaved_row(int64_t row, int64_t head_width) {
  const int64_t head = row / head_width, inside = row % head_width, half = head_width / 2;
  return head * head_width + inside % half * 2 + inside / half;
}

class HuggingFaceView final : public TensorSource {
 public:
  HuggingFaceView(std::unique_ptr<GgufSource> base, std::vector<TensorInfo> tensors,
                  std::vector<int64_t> head_widths)
      : TensorSource(Virtual{}, "gguf", std::move(tensors), {}),
        base_(std::move(base)),
        head_widths_(std::move(head_widths)) {}

  void read(const TensorInfo& tensor, uint64_t offset, std::span<std::byte> out) const override {
    const TensorInfo* own = find(tensor.name);
    if (!own) throw_internal("{} has no tensor '{}'", base_->describe(), tensor.name);
    const int64_t width = head_widths_[size_t(own - tensors().data())];
    if (width == 0) return base_->read(tensor, offset, out);
    check_range(tensor, offset, out.size());
    const uint64_t row_bytes = tensor.n_bytes / uint64_t(tensor.shape[0]);
    while (!out.empty()) {
      const uint64_t row = offset / row_bytes, inside = offset % row_bytes;
      const size_t n = std::min<size_t>(out.size(), size_t(row_bytes - inside));
      const auto from = uint64_t(interleaved_row(int64_t(row), width));
      base_->read(tensor, from * row_bytes + inside, out.first(n));
      out = out.subspan(n);
      offset += n;
    }
  }
  const std::vector<InputFile>& files() const override { return base_->files(); }

 private:
  std::unique_ptr<GgufSource> base_;
  std::vector<int64_t> head_widths_;  // by tensor: of the heads whose rows are put apart; 0: none
};

// Where embedding and head are one matrix, the name of the one with fewer bits; else empty.
std::string_view coarser_twin(const GgufSource& source) {
  const TensorInfo *embed = source.find("token_embd.weight"), *head = source.find("output.weight");
  if (!embed || !head || !same_within_blocks(source, *embed, *head)) return {};
  const auto bits = [](const TensorInfo& t) { return t.blocks ? t.blocks->bits : 32; };
  return bits(*head) > bits(*embed) ? embed->name : head->name;
}

}  // namespace

std::string gguf_tensor_name(std::string_view name) {
  for (const Name& n : kOutside) {
    if (n.gguf == name) return std::string(n.hugging_face);
  }
  if (!name.starts_with("blk.")) return {};
  const std::string_view rest = name.substr(4);
  uint32_t layer = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), layer);
  const auto digits = size_t(end - rest.data());
  // "blk.00." would be a second name of the same tensor.
  if (error != std::errc() || rest.substr(0, digits) != std::to_string(layer)) return {};
  if (digits >= rest.size() || rest[digits] != '.') return {};
  const std::string_view part = rest.substr(digits + 1);
  const size_t dot = part.find('.');
  if (dot == std::string_view::npos) return {};
  const std::string_view what = part.substr(dot);
  if (what != ".weight" && what != ".bias") return {};
  for (const Name& n : kInBlock) {
    if (n.gguf == part.substr(0, dot)) {
      return fmt::format("model.layers.{}.{}{}", layer, n.hugging_face, what);
    }
  }
  return {};
}

std::unique_ptr<TensorSource> as_hugging_face(std::unique_ptr<GgufSource> source, TiedMatrix tied) {
  const GgufMetadata& m = source->values();
  const bool adjacent = gguf_pairs_adjacent(m);
  std::vector<TensorInfo> tensors;
  std::vector<int64_t> head_widths;
  std::vector<std::string> strangers;
  const Config config = parse_config(gguf_config_json(*source), m.where());
  std::unordered_set<std::string> places;
  for (const ParamSpec& p : parameter_table(config)) places.insert(p.name);
  const std::string_view dropped = tied == TiedMatrix::once ? coarser_twin(*source) : "";
  for (const TensorInfo& t : source->tensors()) {
    if (t.name == kFrequencies || t.name == dropped) continue;
    std::string name = gguf_tensor_name(t.name);
    if (!dropped.empty() && name == kHeadName) name = kEmbedName;
    if (!places.contains(name)) {
      strangers.push_back(t.name);
      continue;
    }
    const bool apart = adjacent && (name.find("q_proj") != std::string::npos ||
                                    name.find("k_proj") != std::string::npos);
    if (apart && (t.shape.empty() || t.shape[0] % config.D != 0)) {
      throw_format("{}: tensor '{}' is {}, which are not rows of heads of {}", m.where(), t.name,
                   t.describe(), config.D);
    }
    tensors.push_back(t);
    tensors.back().name = std::move(name);
    head_widths.push_back(apart ? config.D : 0);
  }
  if (!strangers.empty()) {
    const size_t n = strangers.size();
    if (n > 8) strangers.resize(8);
    throw_format("{}: {} tensors have no place in a {} model: {}{}", m.where(), n,
                 m.text("general.architecture"), fmt::join(strangers, ", "), n > 8 ? ", ..." : "");
  }
  return std::make_unique<HuggingFaceView>(std::move(source), std::move(tensors),
                                           std::move(head_widths));
}

std::unique_ptr<TensorSource> open_model_source(const std::filesystem::path& path,
                                                TiedMatrix tied) {
  if (!looks_like_gguf(path)) return open_tensor_source(path);
  auto source = open_gguf(path);
  if (!is_gguf_model(source->values())) return source;
  return as_hugging_face(std::move(source), tied);
}

}  // namespace nibble
