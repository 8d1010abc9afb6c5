// SPDX-License-Identifier: MIT
// RegexSplitter: patterns other than Qwen's, through PCRE2.
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <ctime>

#include "core/error.h"
#include "tokenizer/pretokenize.h"
#include "tokenizer/unicode.h"

namespace nibble {
namespace {

constexpr size_t kMaxPattern = 4096;

// A pattern comes with the model, and one that needs a time that grows with the square of the text
// (or worse) is refused, not waited for: all matches of a text together may take no more processor
// time than this, some thirty times what the patterns of known models take. PCRE2 cannot be stopped
// within a match, so that one gets a small window of the text first, and more only where it wants
// to look past its end; and few steps, and more only where those took so little time that more of
// them are within what is allowed.
constexpr size_t kFirstWindow = 256, kWindowGrowth = 4;
constexpr uint32_t kFirstSteps = 4096, kMostSteps = 1 << 24, kMoreSteps = 16;
constexpr double kSecondsAtAll = 2, kSecondsPerByte = 2e-6;

class ProcessorTime {
 public:
  double seconds() const { return now() - start_; }

 private:
  static double now() {
    timespec t{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
  }
  double start_ = now();
};

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
  // Where it fails, the interpreter runs.
  pcre2_jit_compile(code_->code, PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD);
}
RegexSplitter::~RegexSplitter() = default;
RegexSplitter::RegexSplitter(RegexSplitter&&) noexcept = default;
RegexSplitter& RegexSplitter::operator=(RegexSplitter&&) noexcept = default;

void RegexSplitter::split(std::string_view text, std::vector<uint32_t>& ends) const {
  const MatchContext context(pcre2_match_context_create(nullptr));
  const MatchData data(pcre2_match_data_create(1, nullptr));
  if (!context || !data) throw std::bad_alloc();
  pcre2_set_heap_limit(context.get(), 64 * 1024);  // KiB
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const ProcessorTime time;
  const double allowed = kSecondsAtAll + kSecondsPerByte * double(text.size());
  // When the clock was last looked at: what was done since is no shorter than a match within it.
  double looked = 0;
  // `end`: of the window. A match that touches it is told apart from one that does not.
  const auto match = [&](size_t from, size_t end) {
    uint32_t options = PCRE2_NO_UTF_CHECK;
    if (end < text.size()) options |= PCRE2_PARTIAL_HARD;
    for (uint32_t steps = kFirstSteps;; steps *= kMoreSteps) {
      if (steps > kFirstSteps) looked = time.seconds();
      pcre2_set_match_limit(context.get(), steps);
      int n = pcre2_match(code_->code, subject, end, from, options, data.get(), context.get());
      if (n == PCRE2_ERROR_JIT_STACKLIMIT) {
        n = pcre2_match(code_->code, subject, end, from, options | PCRE2_NO_JIT, data.get(),
                        context.get());
      }
      if (n != PCRE2_ERROR_MATCHLIMIT || steps >= kMostSteps) return n;
      // Sixteen times the steps may take the square of that: later ones may look at more text.
      const double now = time.seconds();
      if ((now - looked) * kMoreSteps * kMoreSteps > allowed - now) return n;
    }
  };
  const auto window_end = [&](size_t from, size_t window) {
    size_t end = window < text.size() - from ? from + window : text.size();
    while (end < text.size() && (uint8_t(text[end]) & 0xc0) == 0x80) ++end;  // whole characters
    return end;
  };
  constexpr size_t kMatchesBetweenLooks = 256;
  size_t last = 0;  // end of the last piece
  for (size_t from = 0, matches = 0; from < text.size();) {
    int n = 0;
    for (size_t window = kFirstWindow;; window *= kWindowGrowth) {
      const size_t end = window_end(from, window);
      n = match(from, end);
      const bool more = end < text.size() && (n == PCRE2_ERROR_PARTIAL || n == PCRE2_ERROR_NOMATCH);
      if (!more && ++matches % kMatchesBetweenLooks != 0) break;
      const double now = time.seconds();
      // A window four times as long may take sixteen times as long.
      const double next = more ? (now - looked) * kWindowGrowth * kWindowGrowth : 0;
      looked = now;
      if (now + next > allowed) {
        throw_format(
            "the tokenizer's split pattern has taken {:.1f} s for {} of {} bytes: its time grows "
            "faster than the text, which no pattern of a usable tokenizer does",
            now, from, text.size());
      }
      if (!more) break;
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
