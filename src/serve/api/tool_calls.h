// SPDX-License-Identifier: MIT
// Calls of tools in what a model writes: <tool_call>{"name": ..., "arguments": {...}}</tool_call>,
// as Qwen and Hermes models are taught. What is no sound call stays text.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace nibble {

struct CalledTool {
  std::string id, name;
  std::string arguments;  // JSON
};

class ToolCallReader {
 public:
  struct Out {
    std::string text;  // what can be shown now
    std::vector<CalledTool> calls;
  };
  // Without tools everything is text.
  explicit ToolCallReader(bool wanted) : wanted_(wanted) {}

  Out push(std::string_view piece);
  Out flush();  // the end: what was held back
  int64_t calls() const { return calls_; }

 private:
  void say(Out& out, std::string text);
  bool wanted_, inside_ = false, after_call_ = false;
  std::string held_;
  int64_t calls_ = 0;
};

}  // namespace nibble
