// SPDX-License-Identifier: MIT
// RegexSplitter: patterns other than Qwen's, through PCRE2.
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "core/error.h"
#include "tokenizer/pretokenize.h"
#include "tokenizer/unicode.h"

namespace nibble {
namespace {

// Steps PCRE2 may take for one match: a pattern that needs more is refused, not waited for.
constexpr uint32_t kMatchLimit = 1'000'000;
constexpr size_t kMaxPattern = 4096;

template <auto Free>
struct Deleter {
  template <class T>
  void operator()(T* p) const {
    Free(p);
  }
};
using MatchContext = std::unique_ptr<pcre2_match_context, Deleter<pcre2_match_context_free>>;
using MatchData = std::unique_ptr<pcre2_match_data, Deleter<pcre2_match_data_free>>;

std::string message_of(int error) {
  char text[256] = "";
  pcre2_get_error_message(error, reinterpret_cast<PCRE2_UCHAR*>(text), sizeof text);
  return text;
}

// Oniguruma's \s is White_Space; PCRE2's has U+180E as well. Escapes whose meaning differs in
// other ways (\w, \b, \h ...) are refused: better no tokenizer than a slightly wrong one.
std::string to_pcre2(std::string_view pattern) {
  std::string out;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '\\') {
      out += pattern[i];
      continue;
    }
    if (++i == pattern.size()) throw_usage("the pattern ends in a backslash");
    const char c = pattern[i];
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (c == 's' || c == 'S') {
      out += c == 's' ? "\\p{wspace}" : "\\P{wspace}";
    } else if (!letter && (c < '0' || c > '9')) {
      out += '\\';
      out += c;
    } else if (std::string_view("pPdDrnt").find(c) != std::string_view::npos) {
      out += '\\';
      out += c;
    } else {
      throw_usage("the escape \\{} of the pattern is not supported", c);
    }
  }
  return out;
}

}  // namespace

struct RegexSplitter::Code {
  pcre2_code* code = nullptr;
  ~Code() { pcre2_code_free(code); }
};

RegexSplitter::RegexSplitter(std::string_view pattern) : code_(std::make_unique<Code>()) {
  if (pattern.size() > kMaxPattern) {
    throw_usage("the pattern has {} bytes, more than {}", pattern.size(), kMaxPattern);
  }
  if (pattern.find("(*") != std::string_view::npos) {  // PCRE2's own verbs
    throw_usage("the pattern contains '(*', which is not supported");
  }
  const std::string p = to_pcre2(pattern);
  int error = 0;
  PCRE2_SIZE offset = 0;
  code_->code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(p.data()), p.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &offset, nullptr);
  if (!code_->code) throw_usage("the pattern does not compile: {}", message_of(error));
  pcre2_jit_compile(code_->code, PCRE2_JIT_COMPLETE);  // where it fails, the interpreter runs
}
RegexSplitter::~RegexSplitter() = default;
RegexSplitter::RegexSplitter(RegexSplitter&&) noexcept = default;
RegexSplitter& RegexSplitter::operator=(RegexSplitter&&) noexcept = default;

void RegexSplitter::split(std::string_view text, std::vector<uint32_t>& ends) const {
  const MatchContext context(pcre2_match_context_create(nullptr));
  const MatchData data(pcre2_match_data_create(1, nullptr));
  if (!context || !data) throw std::bad_alloc();
  pcre2_set_match_limit(context.get(), kMatchLimit);
  pcre2_set_heap_limit(context.get(), 64 * 1024);  // KiB
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  size_t last = 0;  // end of the last piece
  for (size_t from = 0; from < text.size();) {
    constexpr uint32_t options = PCRE2_NO_UTF_CHECK;
    int n =
        pcre2_match(code_->code, subject, text.size(), from, options, data.get(), context.get());
    if (n == PCRE2_ERROR_JIT_STACKLIMIT) {
      n = pcre2_match(code_->code, subject, text.size(), from, options | PCRE2_NO_JIT, data.get(),
                      context.get());
    }
    if (n == PCRE2_ERROR_NOMATCH) break;
    if (n < 0) {
      throw_format("the tokenizer's split pattern failed at byte {} of the text: {}", from,
                   message_of(n));
    }
    const PCRE2_SIZE* range = pcre2_get_ovector_pointer(data.get());
    const size_t begin = range[0], end = range[1];
    if (begin < last || end < begin) {  // \K and look-behind could move the start back
      throw_format("the tokenizer's split pattern matched backwards at byte {}", from);
    }
    if (begin > last) ends.push_back(uint32_t(begin));
    if (end > begin) ends.push_back(uint32_t(end));
    last = end;
    from = end > begin         ? end
           : end < text.size() ? end + decode_valid(text.data() + end).length
                               : text.size();
  }
  if (last < text.size()) ends.push_back(uint32_t(text.size()));
}

}  // namespace nibble
