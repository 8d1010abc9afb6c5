// SPDX-License-Identifier: MIT
#include "tokenizer/mini_tokenizer.h"

#include <nlohmann/json.hpp>

#include "tokenizer/pretokenize.h"
#include "tokenizer/vocabulary.h"

namespace nibble::test {

const Merges& mini_merges() {
  static const Merges merges = {{"h", "e"}, {"l", "l"},       {"he", "ll"},        {"hell", "o"},
                                {" ", "w"}, {"\xe4", "\xbd"}, {"\xe4\xbd", "\xa0"}};
  return merges;
}

Json mini_tokenizer(const Merges& merges) {
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

std::string mini_tokenizer_text(const Merges& merges) { return mini_tokenizer(merges).dump(); }

}  // namespace nibble::test
