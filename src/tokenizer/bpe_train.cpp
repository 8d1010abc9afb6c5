// SPDX-License-Identifier: MIT
// Byte-pair merges by falling count; pairs are recounted only in the words that changed.
#include "tokenizer/bpe_train.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <queue>
#include <unordered_map>
#include <vector>

#include "core/error.h"
#include "tokenizer/pretokenize.h"
#include "tokenizer/unicode.h"
#include "tokenizer/vocabulary.h"

namespace nibble {
namespace {

using nlohmann::ordered_json;

// Qwen3's, in its order.
struct SpecialToken {
  std::string_view text;
  bool special;
};
constexpr std::array<SpecialToken, 26> kSpecial = {
    {{"<|endoftext|>", true},      {"<|im_start|>", true},
     {"<|im_end|>", true},         {"<|object_ref_start|>", true},
     {"<|object_ref_end|>", true}, {"<|box_start|>", true},
     {"<|box_end|>", true},        {"<|quad_start|>", true},
     {"<|quad_end|>", true},       {"<|vision_start|>", true},
     {"<|vision_end|>", true},     {"<|vision_pad|>", true},
     {"<|image_pad|>", true},      {"<|video_pad|>", true},
     {"<tool_call>", false},       {"</tool_call>", false},
     {"<|fim_prefix|>", false},    {"<|fim_middle|>", false},
     {"<|fim_suffix|>", false},    {"<|fim_pad|>", false},
     {"<|repo_name|>", false},     {"<|file_sep|>", false},
     {"<tool_response>", false},   {"</tool_response>", false},
     {"<think>", false},           {"</think>", false}}};

bool is_han(char32_t c) {
  return (c >= 0x3400 && c <= 0x9fff) || (c >= 0xf900 && c <= 0xfaff) ||
         (c >= 0x20000 && c <= 0x3ffff);
}

using Pair = std::pair<uint32_t, uint32_t>;
struct PairHash {
  size_t operator()(const Pair& p) const {
    return size_t((uint64_t(p.first) << 32 | p.second) * 0x9e3779b97f4a7c15u >> 16);
  }
};
struct Candidate {
  int64_t count;
  Pair pair;
  // The most frequent first, the lowest ids among equals.
  bool operator<(const Candidate& o) const {
    return count != o.count ? count < o.count : pair > o.pair;
  }
};

class Merger {
 public:
  explicit Merger(const std::map<std::string, int64_t, std::less<>>& words) {
    // Ids of single bytes in the order of their spelling, as every such file has them.
    const ByteAlphabet& alphabet = ByteAlphabet::instance();
    std::array<uint32_t, 256> order{}, id{};
    for (uint32_t b = 0; b < 256; ++b) order[b] = b;
    std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
      return alphabet.char_of(uint8_t(a)) < alphabet.char_of(uint8_t(b));
    });
    for (uint32_t i = 0; i < 256; ++i) {
      id[order[i]] = i;
      add_token(std::string(1, char(order[i])));
    }
    for (const auto& [word, count] : words) {
      std::vector<uint32_t> symbols;
      for (const char c : word) symbols.push_back(id[uint8_t(c)]);
      words_.push_back({std::move(symbols), count});
      count_pairs(uint32_t(words_.size() - 1), 1);
    }
    for (const auto& [pair, entry] : pairs_) queue_.push({entry.count, pair});
  }

  // Merges the best pair; false when none is frequent enough.
  bool step(int64_t least_count) {
    while (!queue_.empty()) {
      const Candidate best = queue_.top();
      queue_.pop();
      const auto entry = pairs_.find(best.pair);
      const int64_t now = entry == pairs_.end() ? 0 : entry->second.count;
      if (now != best.count) {  // an old count: back with the new one
        if (now > 0) queue_.push({now, best.pair});
        continue;
      }
      if (now < least_count) return false;
      merge(best.pair);
      return true;
    }
    return false;
  }

  size_t tokens() const { return tokens_.size(); }
  const std::string& token(uint32_t id) const { return tokens_[id]; }
  const std::vector<Pair>& merges() const { return merges_; }

 private:
  struct Word {
    std::vector<uint32_t> symbols;
    int64_t count;
  };
  struct Entry {
    int64_t count = 0;
    std::vector<uint32_t> words;  // that have or had the pair
  };

  uint32_t add_token(const std::string& bytes) {
    const auto [at, fresh] = ids_.try_emplace(bytes, uint32_t(tokens_.size()));
    if (fresh) tokens_.push_back(bytes);
    return at->second;
  }

  void count_pairs(uint32_t w, int64_t sign) {
    const Word& word = words_[w];
    for (size_t i = 0; i + 1 < word.symbols.size(); ++i) {
      Entry& e = pairs_[{word.symbols[i], word.symbols[i + 1]}];
      e.count += sign * word.count;
      if (sign > 0 && (e.words.empty() || e.words.back() != w)) e.words.push_back(w);
    }
  }

  void merge(const Pair& pair) {
    const uint32_t result = add_token(tokens_[pair.first] + tokens_[pair.second]);
    merges_.push_back(pair);
    const std::vector<uint32_t> affected = std::move(pairs_[pair].words);
    std::vector<Pair> changed;
    for (const uint32_t w : affected) {
      auto& s = words_[w].symbols;
      bool has = false;
      for (size_t i = 0; i + 1 < s.size(); ++i) has |= Pair{s[i], s[i + 1]} == pair;
      if (!has) continue;
      count_pairs(w, -1);
      size_t to = 0;
      for (size_t i = 0; i < s.size(); ++i, ++to) {
        if (i + 1 < s.size() && Pair{s[i], s[i + 1]} == pair) {
          s[to] = result;
          ++i;
        } else {
          s[to] = s[i];
        }
      }
      s.resize(to);
      count_pairs(w, 1);
      for (size_t i = 0; i + 1 < s.size(); ++i) {
        if (s[i] == result || s[i + 1] == result) changed.push_back({s[i], s[i + 1]});
      }
    }
    pairs_.erase(pair);
    std::sort(changed.begin(), changed.end());
    changed.erase(std::unique(changed.begin(), changed.end()), changed.end());
    for (const Pair& p : changed) queue_.push({pairs_[p].count, p});
  }

  std::vector<Word> words_;
  std::vector<std::string> tokens_;
  std::unordered_map<std::string, uint32_t> ids_;
  std::unordered_map<Pair, Entry, PairHash> pairs_;
  std::priority_queue<Candidate> queue_;
  std::vector<Pair> merges_;
};

ordered_json byte_level() {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", false},
          {"trim_offsets", false},
          {"use_regex", false}};
}

std::string write_json(const Merger& merger) {
  const ByteAlphabet& alphabet = ByteAlphabet::instance();
  ordered_json added = ordered_json::array();
  for (size_t i = 0; i < kSpecial.size(); ++i) {
    added.push_back({{"id", merger.tokens() + i},
                     {"content", kSpecial[i].text},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", kSpecial[i].special}});
  }
  ordered_json vocab = ordered_json::object(), merges = ordered_json::array();
  for (uint32_t id = 0; id < merger.tokens(); ++id) {
    // By hand: ordered_json looks for the key in everything before it.
    vocab.get_ref<ordered_json::object_t&>().emplace_back(alphabet.spell(merger.token(id)), id);
  }
  for (const auto& [left, right] : merger.merges()) {
    merges.push_back({alphabet.spell(merger.token(left)), alphabet.spell(merger.token(right))});
  }
  const ordered_json split = {{"type", "Split"},
                              {"pattern", {{"Regex", kQwenPattern}}},
                              {"behavior", "Isolated"},
                              {"invert", false}};
  const ordered_json file = {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", added},
      {"normalizer", {{"type", "NFC"}}},
      {"pre_tokenizer",
       {{"type", "Sequence"}, {"pretokenizers", ordered_json::array({split, byte_level()})}}},
      {"post_processor", byte_level()},
      {"decoder", byte_level()},
      {"model",
       {{"type", "BPE"},
        {"dropout", nullptr},
        {"unk_token", nullptr},
        {"continuing_subword_prefix", ""},
        {"end_of_word_suffix", ""},
        {"fuse_unk", false},
        {"byte_fallback", false},
        {"ignore_merges", false},
        {"vocab", vocab},
        {"merges", merges}}}};
  return file.dump(1) + "\n";
}

}  // namespace

void BpeTrainer::count(std::string_view word) {
  const auto at = counts_.find(word);
  if (at == counts_.end()) {
    counts_.emplace(word, 1);
  } else {
    ++at->second;
  }
}

void BpeTrainer::add(std::string_view text) {
  const std::string repaired = repair_utf8(text);
  std::string storage;
  const std::string_view normal = normalize_nfc(repaired, storage);
  std::vector<uint32_t> ends;
  split_qwen(normal, ends);
  size_t from = 0;
  for (const uint32_t end : ends) {
    size_t start = from;
    for (size_t i = from; i < end;) {
      const CodePoint c = decode_valid(normal.data() + i);
      if (is_han(c.value)) {
        if (i > start) count(normal.substr(start, i - start));
        count(normal.substr(i, c.length));
        start = i + c.length;
      }
      i += c.length;
    }
    if (end > start) count(normal.substr(start, end - start));
    from = end;
  }
}

std::string BpeTrainer::train(const BpeTrainOptions& options) const {
  const size_t least = 256 + kSpecial.size();
  if (options.vocab_size < int32_t(least)) {
    throw_usage("a vocabulary of {} is too small: bytes and special tokens alone are {}",
                options.vocab_size, least);
  }
  Merger merger(counts_);
  while (merger.tokens() + kSpecial.size() < size_t(options.vocab_size) &&
         merger.step(options.least_count)) {
  }
  return write_json(merger);
}

}  // namespace nibble
