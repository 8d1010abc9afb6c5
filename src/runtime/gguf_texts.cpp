// SPDX-License-Identifier: MIT
#include "runtime/gguf_texts.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "tokenizer/pretokenize.h"

namespace nibble {
namespace {

using OrderedJson = nlohmann::ordered_json;

OrderedJson byte_level(bool use_regex) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", false},
          {"trim_offsets", false},
          {"use_regex", use_regex}};
}
OrderedJson split_then_bytes(std::string_view pattern) {
  const OrderedJson split = {{"type", "Split"},
                             {"pattern", {{"Regex", pattern}}},
                             {"behavior", "Isolated"},
                             {"invert", false}};
  return {{"type", "Sequence"}, {"pretokenizers", {split, byte_level(false)}}};
}

// How text is cut before merging, by tokenizer.ggml.pre.
struct Splitting {
  OrderedJson pre_tokenizer, normalizer;
  bool ignore_merges = false;
};
Splitting splitting_of(const GgufMetadata& m) {
  const std::string& name = m.text("tokenizer.ggml.pre");
  if (name == "qwen2" || name == "deepseek-r1-qwen") {
    return {split_then_bytes(kQwenPattern), {{"type", "NFC"}}};
  }
  if (name == "smollm") {
    const OrderedJson digits = {{"type", "Digits"}, {"individual_digits", true}};
    return {{{"type", "Sequence"}, {"pretokenizers", {digits, byte_level(true)}}}, nullptr};
  }
  if (name == "llama-bpe" || name == "llama3" || name == "llama-v3") {
    return {split_then_bytes(kLlama3Pattern), nullptr, true};
  }
  if (name == "gpt-2") return {byte_level(true), nullptr};
  throw_format(
      "{}: the tokenizer's splitting rule '{}' is not supported, only qwen2, smollm, llama-bpe and "
      "gpt-2 are; --tokenizer FILE gives a tokenizer.json instead",
      m.where(), name);
}

void refuse_other_tokenizers(const GgufMetadata& m) {
  const std::string& model = m.text("tokenizer.ggml.model");
  if (model == "gpt2") return;
  const std::string_view kind = model == "llama"  ? " (SentencePiece)"
                                : model == "bert" ? " (WordPiece)"
                                : model == "t5"   ? " (Unigram)"
                                                  : "";
  throw_format("{}: the tokenizer '{}'{} is not supported, only byte-level BPE ('gpt2') is",
               m.where(), model, kind);
}

// Types of all tokens; without any, all are normal.
GgufIntegers types_of(const GgufMetadata& m, size_t tokens) {
  const GgufIntegers* types = m.find_integers("tokenizer.ggml.token_type");
  if (!types) return GgufIntegers(tokens, kNormalToken);
  if (types->size() != tokens) {
    m.refuse("tokenizer.ggml.token_type", fmt::format("a type of each of the {} tokens", tokens));
  }
  return *types;
}

bool is_added_type(int64_t type) { return type == kControlToken || type == kUserToken; }

// The text of a token that the metadata names by its id; nullopt where it names none.
std::optional<std::string> token_named(const GgufMetadata& m, std::string_view key) {
  if (!m.has(key)) return std::nullopt;
  const GgufStrings& tokens = m.texts("tokenizer.ggml.tokens");
  return tokens[size_t(m.integer(key, 0, int64_t(tokens.size()) - 1))];
}

}  // namespace

std::string gguf_tokenizer_json(const GgufMetadata& m) {
  refuse_other_tokenizers(m);
  const Splitting rule = splitting_of(m);
  const GgufStrings& tokens = m.texts("tokenizer.ggml.tokens");
  const GgufIntegers types = types_of(m, tokens.size());
  // An embedding has more rows than there are tokens: names that fill it up are left out.
  size_t count = tokens.size();
  while (count > 0 && types[count - 1] == kUnusedToken) --count;
  size_t last_normal = 0;
  for (size_t i = 0; i < count; ++i) {
    if (!is_added_type(types[i])) last_normal = i;
  }
  OrderedJson added = OrderedJson::array();
  // Written by hand: an ordered object of JSON looks for each key among all before it.
  std::string vocab;
  for (size_t i = 0; i < count; ++i) {
    if (is_added_type(types[i])) {
      added.push_back({{"id", i},
                       {"content", tokens[i]},
                       {"single_word", false},
                       {"lstrip", false},
                       {"rstrip", false},
                       {"normalized", false},
                       {"special", types[i] == kControlToken}});
      if (i > last_normal) continue;  // behind the vocabulary proper
    }
    vocab += fmt::format("{}{}:{}", vocab.empty() ? "" : ",", OrderedJson(tokens[i]).dump(), i);
  }
  std::string merges;
  for (const std::string& merge : m.texts("tokenizer.ggml.merges")) {
    merges += (merges.empty() ? "" : ",") + OrderedJson(merge).dump();
  }
  return fmt::format(
      "{{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\n\"added_tokens\":{},\n"
      "\"normalizer\":{},\n\"pre_tokenizer\":{},\n\"post_processor\":{},\n\"decoder\":{},\n"
      "\"model\":{{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,"
      "\"continuing_subword_prefix\":null,\"end_of_word_suffix\":null,\"fuse_unk\":false,"
      "\"byte_fallback\":false,\"ignore_merges\":{},\n\"vocab\":{{{}}},\n\"merges\":[{}]}}}}\n",
      added.dump(), rule.normalizer.dump(), rule.pre_tokenizer.dump(), byte_level(false).dump(),
      byte_level(false).dump(), rule.ignore_merges, vocab, merges);
}

std::string gguf_tokenizer_config_json(const GgufMetadata& m) {
  OrderedJson j;
  const std::string* pre = m.find_text("tokenizer.ggml.pre");
  j["tokenizer_class"] = pre && *pre == "qwen2" ? "Qwen2Tokenizer" : "PreTrainedTokenizerFast";
  if (const auto flag = m.find_flag("tokenizer.ggml.add_bos_token")) j["add_bos_token"] = *flag;
  j["add_prefix_space"] = false;
  j["clean_up_tokenization_spaces"] = false;
  const std::pair<const char*, const char*> named[] = {
      {"bos_token", "tokenizer.ggml.bos_token_id"},
      {"eos_token", "tokenizer.ggml.eos_token_id"},
      {"pad_token", "tokenizer.ggml.padding_token_id"},
      {"unk_token", "tokenizer.ggml.unknown_token_id"}};
  for (const auto& [to, from] : named) {
    if (const auto token = token_named(m, from)) j[to] = *token;
  }
  if (const std::string* arch = m.find_text("general.architecture")) {
    if (const auto n = m.find_integer(*arch + ".context_length")) j["model_max_length"] = *n;
  }
  const std::string* chat = m.find_text("tokenizer.chat_template");
  const GgufStrings* names = m.find_texts("tokenizer.chat_templates");
  if (!names) {
    if (chat) j["chat_template"] = *chat;
    return j.dump(2) + "\n";
  }
  // Several: a list, as Hugging Face writes it.
  OrderedJson list = OrderedJson::array();
  if (chat) list.push_back({{"name", "default"}, {"template", *chat}});
  for (const std::string& name : *names) {
    list.push_back({{"name", name}, {"template", m.text("tokenizer.chat_template." + name)}});
  }
  j["chat_template"] = list;
  return j.dump(2) + "\n";
}

std::string gguf_generation_config_json(const GgufMetadata& m) {
  OrderedJson j = OrderedJson::object(), ends = OrderedJson::array();
  if (const auto id = m.find_integer("tokenizer.ggml.bos_token_id")) j["bos_token_id"] = *id;
  for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                          "tokenizer.ggml.eom_token_id"}) {
    // A file without a tokenizer may still say which ids end a reply.
    const bool named =
        m.has("tokenizer.ggml.tokens") ? token_named(m, key).has_value() : m.has(key);
    if (!named) continue;
    const int64_t id = m.integer(key, 0, INT32_MAX);
    if (std::ranges::find(ends, OrderedJson(id)) == ends.end()) ends.push_back(id);
  }
  if (!ends.empty()) j["eos_token_id"] = ends;
  if (const auto id = m.find_integer("tokenizer.ggml.padding_token_id")) j["pad_token_id"] = *id;
  const std::pair<const char*, const char*> numbers[] = {
      {"temperature", "general.sampling.temp"},
      {"top_p", "general.sampling.top_p"},
      {"min_p", "general.sampling.min_p"},
      {"repetition_penalty", "general.sampling.penalty_repeat"}};
  bool sampled = false;
  for (const auto& [to, from] : numbers) {
    if (const auto x = m.find_number(from)) {
      j[to] = std::stod(fmt::format("{}", float(*x)));  // 0.7, not the f32 next to it
      sampled = true;
    }
  }
  if (const auto k = m.find_integer("general.sampling.top_k")) j["top_k"] = *k, sampled = true;
  if (sampled) j["do_sample"] = m.find_number("general.sampling.temp").value_or(1) > 0;
  return j.dump(2) + "\n";
}

}  // namespace nibble
