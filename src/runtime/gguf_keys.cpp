// SPDX-License-Identifier: MIT
#include "runtime/gguf_keys.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/json.h"
#include "core/version.h"
#include "formats/gguf/gguf.h"
#include "model/gguf_model.h"
#include "runtime/generation_config.h"
#include "runtime/gguf_texts.h"
#include "runtime/model_output.h"
#include "runtime/model_template.h"
#include "runtime/model_texts.h"
#include "tokenizer/pretokenize.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// The name of a splitting rule; empty for one that has none.
std::string splitting_name(const json& pre) {
  const auto type = [](const json& j) { return j.value("type", ""); };
  const bool sequence = type(pre) == "Sequence";
  const json parts = sequence ? pre.at("pretokenizers") : json::array({pre});
  if (parts.empty() || type(parts.back()) != "ByteLevel") return {};
  const bool by_itself = parts.back().value("use_regex", true);
  if (parts.size() == 1) return by_itself ? "gpt-2" : "";
  if (parts.size() != 2) return {};
  if (type(parts[0]) == "Digits" && by_itself) return "smollm";
  if (type(parts[0]) != "Split" || by_itself) return {};
  const std::string pattern = parts[0].at("pattern").value("Regex", "");
  if (pattern == kQwenPattern) return "qwen2";
  if (pattern == kLlama3Pattern) return "llama-bpe";
  return pattern == kGpt2Pattern ? "gpt-2" : "";
}

void add_tokens(const Tokenizer& t, int64_t rows, const std::string& where, GgufMetadata& m) {
  if (t.vocab_size() > rows) {
    throw_format("{}: {} tokens, but the model has {} rows for them", where, t.vocab_size(), rows);
  }
  GgufStrings tokens;
  GgufIntegers types;
  for (int32_t id = 0; id < rows; ++id) {
    const bool there = id < t.vocab_size(), added = there && t.is_added(id);
    tokens.push_back(there ? t.token_text(id) : fmt::format("[PAD{}]", id));
    types.push_back(!there             ? kUnusedToken
                    : !added           ? kNormalToken
                    : t.is_special(id) ? kControlToken
                                       : kUserToken);
  }
  m.set_texts("tokenizer.ggml.tokens", std::move(tokens));
  m.set_i32s("tokenizer.ggml.token_type", std::move(types));
}

void add_merges(const json& tokenizer, GgufMetadata& m) {
  GgufStrings merges;
  for (const json& merge : tokenizer.at("model").at("merges")) {
    merges.push_back(merge.is_string()
                         ? merge.get<std::string>()
                         : merge.at(0).get<std::string>() + " " + merge.at(1).get<std::string>());
  }
  m.set_texts("tokenizer.ggml.merges", std::move(merges));
}

// Ids of tokens that have a part to play, and the template.
void add_roles(const fs::path& file, const Tokenizer& t, GgufMetadata& m) {
  const ModelTemplate chat = find_model_template(file);
  const std::pair<const char*, const char*> named[] = {
      {"bos_token", "tokenizer.ggml.bos_token_id"},
      {"pad_token", "tokenizer.ggml.padding_token_id"},
      {"unk_token", "tokenizer.ggml.unknown_token_id"}};
  for (const auto& [from, to] : named) {
    for (const auto& [key, text] : chat.token_strings) {
      if (key != from) continue;
      if (const auto id = t.id_of(text)) m.set_u32(to, uint64_t(*id));
    }
  }
  m.set_flag("tokenizer.ggml.add_bos_token", false);  // nothing is added at the ends of a text
  const std::string source = chat.source.empty() ? fallback_template(t) : chat.source;
  if (!source.empty()) m.set_text("tokenizer.chat_template", source);
}

void add_tokenizer(const fs::path& file, int64_t rows, GgufMetadata& m) {
  const Tokenizer t = load_tokenizer(file);  // says what is wrong with it, kindly
  const auto j = parse_json<json>(tokenizer_text(file));
  const std::string splitting = splitting_name(j.at("pre_tokenizer"));
  if (splitting.empty()) {
    throw_format(
        "{}: a GGUF names the rule by which text is split (qwen2, llama-bpe, smollm, gpt-2), and "
        "this tokenizer's has no name there: --to hf keeps it",
        file.string());
  }
  m.set_text("tokenizer.ggml.model", "gpt2");
  m.set_text("tokenizer.ggml.pre", splitting);
  add_tokens(t, rows, file.string(), m);
  add_merges(j, m);
  add_roles(file, t, m);
}

void add_ends(const fs::path& config, const Config& stored, GgufMetadata& m) {
  Config c = stored;
  const GenerationConfig generation = load_generation_config(config);
  std::vector<int32_t> ids = generation.eos_ids;  // in the order a maker gives them first
  for (const int32_t id : c.eos_ids) {
    if (std::ranges::find(ids, id) == ids.end()) ids.push_back(id);
  }
  constexpr const char* kKeys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                   "tokenizer.ggml.eom_token_id"};
  for (size_t i = 0; i < std::min(ids.size(), std::size(kKeys)); ++i) {
    m.set_u32(kKeys[i], uint64_t(ids[i]));
  }
  const auto j = parse_json_or_discard<json>(config_text(config));
  for (const auto& [from, to] : {std::pair("bos_token_id", "tokenizer.ggml.bos_token_id"),
                                 std::pair("pad_token_id", "tokenizer.ggml.padding_token_id")}) {
    const bool known = j.is_object() && j.contains(from) && j[from].is_number_unsigned();
    if (known && !m.has(to) && j[from] < stored.V) m.set_u32(to, j[from].get<uint64_t>());
  }
  if (generation.source.empty()) return;
  const SampleOptions& s = generation.sample;
  const SampleOptions neutral;
  m.set_f32("general.sampling.temp", s.temperature);
  if (s.top_k != neutral.top_k) m.set_u32("general.sampling.top_k", uint64_t(s.top_k));
  if (s.top_p != neutral.top_p) m.set_f32("general.sampling.top_p", s.top_p);
  if (s.min_p != neutral.min_p) m.set_f32("general.sampling.min_p", s.min_p);
  if (s.repetition_penalty != neutral.repetition_penalty) {
    m.set_f32("general.sampling.penalty_repeat", s.repetition_penalty);
  }
}

// What another GGUF says beyond the shape of its model: its maker, its licence, how to sample; or
// its tokenizer, in the words it has.
template <class Wanted>
void take_over(const fs::path& from, Wanted&& wanted, GgufMetadata& m) {
  const auto source = open_gguf(from);
  for (const auto& [key, value] : source->values().values()) {
    if (wanted(std::string_view(key)) && !m.has(key)) m.add(key, value);
  }
}

bool of_the_maker(std::string_view key) {
  return key.starts_with("general.") && key != "general.alignment" && key != "general.file_type" &&
         !key.starts_with("general.base_model.") && !key.starts_with("general.quantized_by");
}

}  // namespace

GgufMetadata gguf_keys(const fs::path& config, const fs::path& tokenizer, const Config& stored,
                       const ModelOrigin& origin) {
  GgufMetadata m = gguf_model_metadata(stored);
  m.set_text("general.name", origin.name);
  m.set_text("general.quantized_by", version_line());
  if (!origin.parent.empty()) {
    m.set_u32("general.base_model.count", 1);
    m.set_text("general.base_model.0.name", origin.parent);
  }
  for (const OriginFile& f : origin.files) {
    m.set_text(fmt::format("nibble.{}.name", f.role), f.name);
    if (!f.sha256.empty()) m.set_text(fmt::format("nibble.{}.sha256", f.role), f.sha256);
  }
  if (looks_like_gguf(config)) take_over(config, of_the_maker, m);
  if (!looks_like_gguf(config) || !looks_like_gguf(tokenizer)) add_ends(config, stored, m);
  if (looks_like_gguf(tokenizer)) {
    take_over(
        tokenizer, [](std::string_view key) { return key.starts_with("tokenizer."); }, m);
  } else if (!tokenizer.empty()) {
    add_tokenizer(tokenizer, stored.V, m);
  }
  return m;
}

std::string ollama_modelfile(const std::string& gguf_name, const GgufMetadata& m) {
  std::string s = fmt::format("# ollama create NAME -f Modelfile\nFROM ./{}\n", gguf_name);
  const std::string* chat = m.find_text("tokenizer.chat_template");
  if (chat && chat->find("<|im_start|>") != chat->npos) {
    s += "TEMPLATE \"\"\"{{- range .Messages }}<|im_start|>{{ .Role }}\n{{ .Content }}<|im_end|>\n"
         "{{ end }}<|im_start|>assistant\n\"\"\"\nPARAMETER stop \"<|im_end|>\"\n";
  }
  const std::pair<const char*, const char*> numbers[] = {
      {"temperature", "general.sampling.temp"},
      {"top_k", "general.sampling.top_k"},
      {"top_p", "general.sampling.top_p"},
      {"min_p", "general.sampling.min_p"},
      {"repeat_penalty", "general.sampling.penalty_repeat"}};
  for (const auto& [to, from] : numbers) {
    if (const auto x = m.find_number(from)) s += fmt::format("PARAMETER {} {}\n", to, float(*x));
  }
  // Without a wish for sampling a reply is greedy here, and drawn there by default.
  if (!m.has("general.sampling.temp")) s += "PARAMETER temperature 0\n";
  return s;
}

}  // namespace nibble
