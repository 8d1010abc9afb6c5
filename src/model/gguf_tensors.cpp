// SPDX-License-Identifier: MIT
// Tensors of a GGUF under Hugging Face names.
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <unordered_set>
#include <utility>

#include "core/error.h"
#include "formats/gguf/block_types.h"
#include "formats/gguf/encode_blocks.h"
#include "model/config.h"
#include "model/gguf_model.h"
#include "model/params.h"
#include "model/same_matrix.h"
#include "quant/nvfp4.h"

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
// Where gguf_pairs_adjacent(): the file's row 2i + half is Hugging Face's row half * D/2 + i.
int64_t interleaved_row(int64_t row, int64_t head_width) {
  const int64_t head = row / head_width, inside = row % head_width, half = head_width / 2;
  return head * head_width + inside % half * 2 + inside / half;
}

enum class Part { whole, codes, scales };

// A tensor of the file, or a part of one.
struct Piece {
  TensorInfo info;                   // as it is seen
  const TensorInfo* from = nullptr;  // in the file
  Part part = Part::whole;
  int64_t head_width = 0;  // of the heads whose rows are put apart; 0: none
};

std::vector<TensorInfo> infos_of(const std::vector<Piece>& pieces) {
  std::vector<TensorInfo> infos;
  for (const Piece& p : pieces) infos.push_back(p.info);
  return infos;
}

class HuggingFaceView final : public TensorSource {
 public:
  HuggingFaceView(std::unique_ptr<GgufSource> base, std::vector<Piece> pieces)
      : TensorSource(Virtual{}, "gguf", infos_of(pieces), {}),
        base_(std::move(base)),
        pieces_(std::move(pieces)) {}

  void read(const TensorInfo& tensor, uint64_t offset, std::span<std::byte> out) const override {
    const TensorInfo* own = find(tensor.name);
    if (!own) throw_internal("{} has no tensor '{}'", base_->describe(), tensor.name);
    const Piece& piece = pieces_[size_t(own - tensors().data())];
    check_range(tensor, offset, out.size());
    if (piece.head_width == 0) return read_piece(piece, offset, out);
    const uint64_t row_bytes = tensor.n_bytes / uint64_t(tensor.shape[0]);
    while (!out.empty()) {
      const uint64_t row = offset / row_bytes, inside = offset % row_bytes;
      const size_t n = std::min<size_t>(out.size(), size_t(row_bytes - inside));
      const auto from = uint64_t(interleaved_row(int64_t(row), piece.head_width));
      read_piece(piece, from * row_bytes + inside, out.first(n));
      out = out.subspan(n);
      offset += n;
    }
  }
  const std::vector<InputFile>& files() const override { return base_->files(); }

 private:
  // In the order of the file's rows.
  void read_piece(const Piece& piece, uint64_t offset, std::span<std::byte> out) const {
    if (piece.part == Part::whole) return base_->read(*piece.from, offset, out);
    constexpr uint64_t kBlock = 36, kChunk = 1024;
    const uint64_t width = piece.part == Part::codes ? 32 : 4;
    std::vector<uint8_t> blocks, codes(size_t(kChunk) * 32), scales(size_t(kChunk) * 4);
    while (!out.empty()) {
      const uint64_t first = offset / width, inside = offset % width;
      const uint64_t wanted = (inside + out.size() + width - 1) / width;
      const uint64_t count = std::min(wanted, kChunk);
      blocks.resize(size_t(count * kBlock));
      base_->read_stored(*piece.from, first * kBlock, std::as_writable_bytes(std::span(blocks)));
      if (!split_nvfp4_blocks(blocks.data(), int64_t(count), codes.data(), scales.data())) {
        throw_format("{}: tensor '{}' has a scale byte of 0xff, which is no number of E4M3",
                     base_->describe(), piece.from->name);
      }
      const auto& made = piece.part == Part::codes ? codes : scales;
      const size_t n = std::min<size_t>(out.size(), size_t(count * width - inside));
      std::memcpy(out.data(), made.data() + inside, n);
      out = out.subspan(n);
      offset += n;
    }
  }

  std::unique_ptr<GgufSource> base_;
  std::vector<Piece> pieces_;  // as tensors()
};

// A matrix of NVFP4 as its parts, as other files have them.
void add_packed(const TensorInfo& t, const TensorInfo* global_scale, const std::string& name,
                int64_t head_width, std::vector<Piece>& out) {
  const auto part = [&](const char* suffix, DType dtype, int64_t per, Part which) {
    TensorInfo info = t;
    info.name = name + suffix;
    info.dtype = dtype;
    info.blocks = nullptr;
    info.shape = {t.shape[0], t.shape[1] / per};
    info.n_bytes = uint64_t(info.numel());
    out.push_back({std::move(info), &t, which, head_width});
  };
  part(".qdata", DType::u8, 2, Part::codes);
  part(".scale", DType::f8_e4m3, kNvfp4Block, Part::scales);
  if (!global_scale) return;
  TensorInfo info = *global_scale;
  info.name = name + ".global_scale";
  out.push_back({std::move(info), global_scale, Part::whole, 0});
}

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

std::string gguf_name_of(std::string_view name) {
  for (const Name& n : kOutside) {
    if (n.hugging_face == name) return std::string(n.gguf);
  }
  constexpr std::string_view kBlocks = "model.layers.";
  if (name.starts_with(kBlocks)) {
    const std::string_view rest = name.substr(kBlocks.size());
    const size_t dot = rest.find('.'), end = rest.rfind('.');
    for (const Name& n : kInBlock) {
      if (dot >= end || rest.substr(dot + 1, end - dot - 1) != n.hugging_face) continue;
      std::string made = fmt::format("blk.{}.{}{}", rest.substr(0, dot), n.gguf, rest.substr(end));
      if (gguf_tensor_name(made) == name) return made;
    }
  }
  throw_format("tensor '{}' has no place in a GGUF model", name);
}

std::unique_ptr<TensorSource> as_hugging_face(std::unique_ptr<GgufSource> source, TiedMatrix tied) {
  const GgufMetadata& m = source->values();
  const bool adjacent = gguf_pairs_adjacent(m);
  std::vector<Piece> pieces;
  std::vector<std::string> strangers;
  const Config config = parse_config(gguf_config_json(*source), m.where());
  std::unordered_set<std::string> places;
  for (const ParamSpec& p : parameter_table(config)) places.insert(p.name);
  const std::string_view dropped = tied == TiedMatrix::once ? coarser_twin(*source) : "";
  const auto is_nvfp4 = [](const TensorInfo* t) {
    return t && t->blocks && t->blocks->name == "NVFP4" && t->shape.size() == 2;
  };
  // A scale of a whole tensor belongs to one in NVFP4; inputs are quantised as they come.
  const auto owner = [&](std::string_view name, std::string_view suffix) -> const TensorInfo* {
    if (!name.ends_with(suffix)) return nullptr;
    return source->find(std::string(name.substr(0, name.size() - suffix.size())) + ".weight");
  };
  for (const TensorInfo& t : source->tensors()) {
    if (t.name == kGgufFrequencies || t.name == dropped) continue;
    if (is_nvfp4(owner(t.name, ".scale")) &&
        gguf_tensor_name(owner(t.name, ".scale")->name) != kEmbedName) {
      continue;
    }
    if (owner(t.name, ".input_scale")) continue;
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
    const int64_t head_width = apart ? config.D : 0;
    if (is_nvfp4(&t) && name != kEmbedName) {
      const std::string scale = t.name.substr(0, t.name.rfind('.')) + ".scale";
      add_packed(t, source->find(scale), name, head_width, pieces);
      continue;
    }
    Piece piece{t, &t, Part::whole, head_width};
    piece.info.name = std::move(name);
    pieces.push_back(std::move(piece));
  }
  if (!strangers.empty()) {
    const size_t n = strangers.size();
    if (n > 8) strangers.resize(8);
    throw_format("{}: {} tensors have no place in a {} model: {}{}", m.where(), n,
                 m.text("general.architecture"), fmt::join(strangers, ", "), n > 8 ? ", ..." : "");
  }
  return std::make_unique<HuggingFaceView>(std::move(source), std::move(pieces));
}

std::unique_ptr<TensorSource> open_model_source(const std::filesystem::path& path,
                                                TiedMatrix tied) {
  if (!looks_like_gguf(path)) return open_tensor_source(path);
  auto source = open_gguf(path);
  if (!is_gguf_model(source->values())) return source;
  return as_hugging_face(std::move(source), tied);
}

}  // namespace nibble
