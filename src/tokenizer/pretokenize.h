// SPDX-License-Identifier: MIT
// Cuts text into the pieces that BPE works on. Qwen's pattern runs in a hand-written scanner, any
// other pattern through PCRE2.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace nibble {

// The pattern of Qwen2, 2.5 and 3.
inline constexpr std::string_view kQwenPattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
// The pattern of Llama 3: Qwen's with digits by threes.
inline constexpr std::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
// The pattern of GPT-2, which ByteLevel means by use_regex.
inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// A compiled pattern. The text must be valid UTF-8. Thread-safe.
class RegexSplitter {
 public:
  // Throws UsageError when the pattern does not compile, or uses an escape that means something
  // else to the engine the file was written for (Oniguruma).
  explicit RegexSplitter(std::string_view pattern);
  ~RegexSplitter();
  RegexSplitter(RegexSplitter&&) noexcept;
  RegexSplitter& operator=(RegexSplitter&&) noexcept;

  // Appends the end of each piece: every match is one, and so is what lies between two matches.
  void split(std::string_view text, std::vector<uint32_t>& ends) const;

 private:
  struct Code;
  std::unique_ptr<Code> code_;
};

// The same pieces as RegexSplitter(kQwenPattern), with the classes of unicode.h.
void split_qwen(std::string_view text, std::vector<uint32_t>& ends);

}  // namespace nibble
