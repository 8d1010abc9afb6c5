// SPDX-License-Identifier: MIT
// A string that remembers which of its bytes stand in the template and which came from outside:
// only the former may become control tokens. Immutable, cheap to copy, always valid UTF-8.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/jinja/budget.h"

namespace nibble::jinja {

struct Origin {
  uint32_t source = 0;     // 0: the template; else outside, and the caller may number what is whose
  bool generated = false;  // made inside {% generation %}: what the model is to write
  bool from_outside() const { return source != 0; }
  friend bool operator==(const Origin&, const Origin&) = default;
  static const Origin written, outside;
};
inline constexpr Origin Origin::written{0, false};
inline constexpr Origin Origin::outside{1, false};

// Bytes up to `end` (from where the previous run ended) are of this origin. Neighbours differ.
struct Run {
  size_t end;
  Origin origin;
};

class Text {
 public:
  Text() = default;
  Text(std::string bytes, Origin origin);
  Text(std::string bytes, std::vector<Run> runs, bool markup);
  static Text written(std::string_view s) { return Text(std::string(s), Origin::written); }

  std::string_view view() const {
    return rep_ ? std::string_view(rep_->bytes) : std::string_view();
  }
  size_t size() const { return view().size(); }
  bool empty() const { return size() == 0; }
  const std::vector<Run>& runs() const;
  // What Python calls Markup: made by `safe`, escapes what is added to it.
  bool markup() const { return rep_ && rep_->markup; }
  Text with_markup(bool markup) const;
  Origin origin_at(size_t byte) const;

  int64_t length() const;  // in characters
  bool one_byte_each() const { return length() == int64_t(size()); }
  size_t byte_of(int64_t character) const;  // 0 <= character <= length()
  Text bytes(size_t from, size_t to, Budget& budget) const;

 private:
  struct Rep {
    std::string bytes;
    std::vector<Run> runs;
    bool markup;
    mutable std::atomic<int64_t> length = -1;  // counted when somebody asks
    Rep(std::string b, std::vector<Run> r, bool m)
        : bytes(std::move(b)), runs(std::move(r)), markup(m) {}
  };
  std::shared_ptr<const Rep> rep_;
};

class TextBuilder {
 public:
  explicit TextBuilder(Budget& budget) : budget_(budget) {}
  void add(std::string_view bytes, Origin origin);
  void add(const Text& text) { add(text, 0, text.size()); }
  void add(const Text& text, size_t from, size_t to);
  void written(std::string_view bytes) { add(bytes, Origin::written); }
  void outside(std::string_view bytes) { add(bytes, Origin::outside); }
  size_t size() const { return bytes_.size(); }
  Budget& budget() { return budget_; }
  Text take(bool markup = false);
  void mark_generated(size_t from);  // all that was added since there were `from` bytes

 private:
  Budget& budget_;
  std::string bytes_;
  std::vector<Run> runs_;
};

}  // namespace nibble::jinja
