// SPDX-License-Identifier: MIT
// The text of a reply as its tokens come: whole characters, up to a stop text.
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "generate/stop_text.h"
#include "tokenizer/stream_decoder.h"

namespace nibble {

class ReplyText {
 public:
  // Without a tokenizer there is no text.
  ReplyText(const std::optional<Tokenizer>& tokenizer, std::vector<std::string> stops)
      : stop_(std::move(stops)) {
    if (tokenizer) decoder_.emplace(*tokenizer, DecodeSpecial::skip);
  }
  std::string push(int32_t id) { return decoder_ ? stop_.push(decoder_->push(id)) : ""; }
  std::string flush() {
    std::string text = decoder_ ? stop_.push(decoder_->flush()) : "";
    return text += stop_.flush();
  }
  bool stopped() const { return stop_.stopped(); }

 private:
  std::optional<StreamDecoder> decoder_;
  StopText stop_;
};

}  // namespace nibble
