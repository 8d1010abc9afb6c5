// SPDX-License-Identifier: MIT
// What the API knows of the model behind it.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/generation_config.h"
#include "tokenizer/chat_template.h"

namespace nibble {

class ReplyForms;

struct ServedModel {
  std::string name;
  int64_t created = 0;  // seconds since 1970
  std::optional<Tokenizer> tokenizer;
  ChatTemplate style;
  ContentTokens content = ContentTokens::plain;
  std::optional<bool> thinking;
  std::vector<int32_t> stop_ids;
  SampleOptions sample;  // where a request says nothing
  int64_t context = 0;   // tokens of a conversation
  double timeout_s = 0;  // of a request; 0: none
  int64_t most_choices = 128;
  std::vector<std::string> devices;   // of its replicas
  std::shared_ptr<ReplyForms> forms;  // of the tokenizer

  // Or an ApiError.
  const Tokenizer& require_tokenizer() const;
};

}  // namespace nibble
