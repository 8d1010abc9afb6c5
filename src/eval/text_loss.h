// SPDX-License-Identifier: MIT
// How well a model predicts a text: the mean loss a token, in windows that know nothing of each
// other.
#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "eval/damage/packed_pass.h"
#include "tokenizer/tokenizer.h"

namespace nibble {

struct TextWindows {
  std::string name;                       // of the file, and of the tensor in it
  std::vector<std::vector<int64_t>> ids;  // a window each, at least two tokens
};

// A text file is encoded as it stands (the text of control tokens stays text) and cut into windows
// of `window` tokens, at most `most` of them (0: all). Every int64 tensor [B, T] of a .safetensors
// file is B windows of token ids. The tokenizer may be null for the latter.
std::vector<TextWindows> read_text_windows(const std::filesystem::path& file,
                                           const Tokenizer* tokenizer, int64_t window,
                                           int64_t most);

struct TextLoss {
  double loss = 0;            // nats a token, mean of all that are scored
  double standard_error = 0;  // of that mean, from the spread of the windows; 0 for one window
  int64_t tokens = 0;         // scored: all but the first of a window
  std::vector<double> windows;
};

// A model, ready to read windows of text.
struct TextReader {
  Backend& backend;
  const Model& model;
  PassOptions options;
};
using TextReaders = std::span<const TextReader>;
// Several windows go through the model in one pass; the logits stay where they are made. Several
// readers of one model, each with a backend of its own, share the windows.
TextLoss text_loss(TextReaders readers, const TextWindows& windows);
inline TextLoss text_loss(const TextReader& reader, const TextWindows& windows) {
  return text_loss(TextReaders(&reader, 1), windows);
}

}  // namespace nibble
