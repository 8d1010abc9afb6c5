// SPDX-License-Identifier: MIT
#include "serve/api/reply_ids.h"

#include <fmt/format.h>

#include <random>

namespace nibble {

std::string new_reply_id(std::string_view prefix) {
  std::random_device device;
  return fmt::format("{}-{:08x}{:08x}{:08x}", prefix, device(), device(), device());
}

}  // namespace nibble
