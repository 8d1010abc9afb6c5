// SPDX-License-Identifier: MIT
// Ends a reply at given texts, which are not shown: what may still become one of them is held back
// until it has or has not, wherever the pieces are cut.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace nibble {

class StopText {
 public:
  explicit StopText(std::vector<std::string> stops = {});  // UsageError for an empty one

  // The text that can be shown now. Once a stop has come, nothing follows.
  std::string push(std::string_view piece);
  // The end of the reply: what was held back and is no stop.
  std::string flush();
  bool stopped() const { return stopped_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace nibble
