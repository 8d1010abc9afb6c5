// SPDX-License-Identifier: MIT
#include "tokenizer/jinja/text.h"

#include <algorithm>

namespace nibble::jinja {
namespace {

bool starts_character(char c) { return (uint8_t(c) & 0xc0) != 0x80; }

}  // namespace

Text::Text(std::string bytes, Origin origin) {
  if (bytes.empty()) return;
  std::vector<Run> runs = {{bytes.size(), origin}};
  *this = Text(std::move(bytes), std::move(runs), false);
}

Text::Text(std::string bytes, std::vector<Run> runs, bool markup) {
  if (bytes.empty() && !markup) return;
  rep_ = std::make_shared<const Rep>(std::move(bytes), std::move(runs), markup);
}

const std::vector<Run>& Text::runs() const {
  static const std::vector<Run> none;
  return rep_ ? rep_->runs : none;
}

Text Text::with_markup(bool markup) const {
  if (markup == this->markup()) return *this;
  return Text(std::string(view()), runs(), markup);
}

Origin Text::origin_at(size_t byte) const {
  const auto& r = runs();
  const auto at = std::upper_bound(r.begin(), r.end(), byte,
                                   [](size_t b, const Run& run) { return b < run.end; });
  return at == r.end() ? Origin::written : at->origin;
}

int64_t Text::length() const {
  if (!rep_) return 0;
  int64_t n = rep_->length.load(std::memory_order_relaxed);
  if (n < 0) {
    n = std::count_if(rep_->bytes.begin(), rep_->bytes.end(), starts_character);
    rep_->length.store(n, std::memory_order_relaxed);
  }
  return n;
}

size_t Text::byte_of(int64_t character) const {
  if (one_byte_each()) return size_t(character);
  const std::string_view s = view();
  size_t at = 0;
  for (; at < s.size(); ++at) {
    if (starts_character(s[at]) && character-- == 0) return at;
  }
  return s.size();
}

Text Text::bytes(size_t from, size_t to, Budget& budget) const {
  if (from >= to) return markup() ? Text({}, {}, true) : Text();
  if (from == 0 && to == size()) return *this;
  TextBuilder out(budget);
  out.add(*this, from, to);
  return out.take(markup());
}

void TextBuilder::add(std::string_view bytes, Origin origin) {
  if (bytes.empty()) return;
  budget_.check_text(bytes_.size() + bytes.size());
  budget_.charge_text(bytes.size());
  bytes_ += bytes;
  if (!runs_.empty() && runs_.back().origin == origin) {
    runs_.back().end = bytes_.size();
  } else {
    runs_.push_back({bytes_.size(), origin});
  }
}

void TextBuilder::add(const Text& text, size_t from, size_t to) {
  const std::string_view s = text.view();
  const auto& runs = text.runs();
  auto run = std::upper_bound(runs.begin(), runs.end(), from,
                              [](size_t b, const Run& r) { return b < r.end; });
  for (; from < to && run != runs.end(); ++run) {
    const size_t end = std::min(run->end, to);
    add(s.substr(from, end - from), run->origin);
    from = end;
  }
}

void TextBuilder::mark_generated(size_t from) {
  size_t first = runs_.size();
  while (first > 0 && runs_[first - 1].end > from) --first;
  if (first == runs_.size()) return;
  // The run that `from` lies in is cut in two.
  const size_t begin = first == 0 ? 0 : runs_[first - 1].end;
  if (begin < from) {
    runs_.insert(runs_.begin() + std::ptrdiff_t(first), Run{from, runs_[first].origin});
    ++first;
  }
  for (; first < runs_.size(); ++first) runs_[first].origin.generated = true;
}

Text TextBuilder::take(bool markup) {
  Text out(std::move(bytes_), std::move(runs_), markup);
  bytes_.clear();
  runs_.clear();
  return out;
}

}  // namespace nibble::jinja
