// SPDX-License-Identifier: MIT
// The body of /v1/completions, read.
#include <algorithm>

#include "core/json.h"
#include "serve/api/api_error.h"
#include "serve/api/completion_reply.h"

namespace nibble {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostPrompts = 256;
constexpr int64_t kMostLogprobs = 20, kDefaultTokens = 16;

std::vector<int32_t> ids_of(const Json& list) {
  std::vector<int32_t> ids;
  for (const Json& j : list) {
    const bool fits = j.is_number_integer() && j.get<double>() >= 0 && j.get<double>() <= INT32_MAX;
    if (!fits) throw_invalid("prompt", "'prompt' has a token id that is no whole number");
    ids.push_back(j.get<int32_t>());
  }
  return ids;
}

void add_prompt(const Json& j, const ServedModel& model, CompletionRequest& r) {
  if (j.is_string()) {
    r.shown.push_back(j.get<std::string>());
    r.prompts.push_back(model.require_tokenizer().encode(r.shown.back()));
  } else if (j.is_array()) {
    r.prompts.push_back(ids_of(j));
    const auto& ids = r.prompts.back();
    r.shown.push_back(model.tokenizer ? model.tokenizer->decode(ids) : "");
  } else {
    throw_invalid("prompt",
                  "'prompt' must be a string, an array of token ids, or an array of these");
  }
}

}  // namespace

CompletionRequest read_completion_request(const Json& body, const ServedModel& model) {
  BodyFields f(body);
  CompletionRequest r;
  const Json* const prompt = f.any("prompt");
  if (!prompt) throw_invalid("prompt", "'prompt' is missing");
  const bool several = prompt->is_array() && !prompt->empty() &&
                       std::ranges::none_of(*prompt, [](const Json& j) { return j.is_number(); });
  if (several) {
    if (prompt->size() > kMostPrompts)
      throw_invalid("prompt", "'prompt' has {} prompts, expected {} at most", prompt->size(),
                    kMostPrompts);
    for (const Json& one : *prompt) add_prompt(one, model, r);
  } else {
    add_prompt(*prompt, model, r);
  }
  r.common = read_common_fields(f, model);
  r.echo = f.boolean("echo").value_or(false);
  r.common.reply.max_tokens = f.integer("max_tokens", 0, INT32_MAX).value_or(kDefaultTokens);
  r.prompt_only = r.common.reply.max_tokens == 0;
  if (r.prompt_only) {
    if (!r.echo) throw_invalid("max_tokens", "'max_tokens': 0 says something with 'echo' only");
    r.common.reply.max_tokens = 1;
  }
  if (const auto n = f.integer("logprobs", 0, kMostLogprobs)) {
    model.require_tokenizer();
    r.logprobs = int(*n);
  }
  if (const auto best = f.integer("best_of", 1, model.most_choices); best && *best != r.common.n)
    throw_invalid("best_of", "'best_of' must be 'n' here: every reply is shown");
  if (const auto suffix = f.text("suffix"); suffix && !suffix->empty())
    throw_invalid("suffix", "'suffix' is not supported: the model only continues");
  f.finish();
  return r;
}

}  // namespace nibble
