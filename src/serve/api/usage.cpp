// SPDX-License-Identifier: MIT
#include "serve/api/usage.h"

#include "core/json.h"

namespace nibble {

nlohmann::ordered_json usage_json(const Choices& c) {
  return {{"prompt_tokens", c.prompt_tokens()},
          {"completion_tokens", c.tokens()},
          {"total_tokens", c.prompt_tokens() + c.tokens()},
          {"prompt_tokens_details", {{"cached_tokens", c.reused_tokens()}}}};
}

}  // namespace nibble
