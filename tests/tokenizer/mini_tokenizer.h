// SPDX-License-Identifier: MIT
// A small tokenizer.json of Qwen's structure, as a document that tests can change.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenizer/pretokenize.h"
#include "tokenizer/vocabulary.h"

namespace nibble::test {

using Json = nlohmann::ordered_json;

// 256 bytes as ids 0..255, then one token per merge, then the added tokens.
inline Json mini_tokenizer(const std::vector<std::pair<std::string, std::string>>& merges = {
                               {"h", "e"},
                               {"l", "l"},
                               {"he", "ll"},
                               {"hell", "o"},
                               {" ", "w"},
                               {"\xe4", "\xbd"},
                               {"\xe4\xbd", "\xa0"}}) {
  const ByteAlphabet& alphabet = ByteAlphabet::instance();
  Json vocab = Json::object(), pairs = Json::array();
  int id = 0;
  for (int b = 0; b < 256; ++b) vocab[alphabet.spell(std::string(1, char(b)))] = id++;
  for (const auto& [a, b] : merges) {
    vocab[alphabet.spell(a + b)] = id++;
    pairs.push_back({alphabet.spell(a), alphabet.spell(b)});
  }
  Json added = Json::array();
  for (const char* t : {"<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>",
                        "<tool_call>", "</tool_call>"}) {
    added.push_back({{"id", id++},
                     {"content", t},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", t[1] == '|'}});
  }
  const Json byte_level = {{"type", "ByteLevel"},
                           {"add_prefix_space", false},
                           {"trim_offsets", false},
                           {"use_regex", false}};
  const Json split = {{"type", "Split"},
                      {"pattern", {{"Regex", std::string(kQwenPattern)}}},
                      {"behavior", "Isolated"},
                      {"invert", false}};
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", added},
          {"normalizer", {{"type", "NFC"}}},
          {"pre_tokenizer",
           {{"type", "Sequence"}, {"pretokenizers", Json::array({split, byte_level})}}},
          {"post_processor", byte_level},
          {"decoder", byte_level},
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
            {"merges", pairs}}}};
}

}  // namespace nibble::test
