// SPDX-License-Identifier: MIT
// Replies of a given form: what a request says of it as a grammar, and the grammar as a rule of the
// scheduler.
#pragma once
#include <memory>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <vector>

#include "grammar/token_masks.h"
#include "serve/schedule/request.h"

namespace nibble {

// Of 'response_format'; nothing for text. Throws ApiError.
std::optional<ByteGrammar> response_form(const nlohmann::ordered_json& format);
// A call of one of `tools`, or of the one that `choice` names.
ByteGrammar forced_call_form(const nlohmann::ordered_json& tools,
                             const nlohmann::ordered_json& choice);

// Makes rules; the vocabulary is sorted when the first is wanted.
class ReplyForms {
 public:
  std::unique_ptr<TokenRule> rule(const ByteGrammar& form, const Tokenizer& tokenizer,
                                  const std::vector<int32_t>& stop_ids);

 private:
  std::mutex mutex_;
  std::shared_ptr<const SortedVocabulary> words_;
};

}  // namespace nibble
