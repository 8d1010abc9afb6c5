// SPDX-License-Identifier: MIT
#include "tokenizer/tokenizer.h"

#include "core/error.h"
#include "core/file.h"
#include "tokenizer/stream_decoder.h"
#include "tokenizer/tokenizer_data.h"
#include "tokenizer/unicode.h"

namespace nibble {
namespace {

constexpr size_t kMaxText = size_t(1) << 30;  // offsets inside a text are 32 bit

struct Region {
  size_t begin, end;
  SpecialTokens special;
};

// One encode() call: its buffers are reused from segment to segment.
class Encoding {
 public:
  explicit Encoding(const TokenizerData& data) : data_(data) {}

  // Regions lie end to end and cover the text, which is valid UTF-8.
  std::vector<int32_t> run(std::string_view text, std::span<const Region> regions) {
    size_t done = 0;
    for (const Region& r : regions) {
      if (r.special == SpecialTokens::plain) continue;
      const AddedTokenFinder& finder =
          r.special == SpecialTokens::parse ? data_.added_raw : data_.added_words;
      size_t from = r.begin;
      while (const auto m = finder.find(text, from, r.end)) {
        segment(text.substr(done, m->begin - done), r.special);
        ids_.push_back(int32_t(m->id));
        done = from = m->end;
      }
    }
    const SpecialTokens last = regions.empty() ? SpecialTokens::plain : regions.back().special;
    segment(text.substr(done), last);
    return std::move(ids_);
  }

 private:
  // Text between added tokens that are matched before normalisation.
  void segment(std::string_view text, SpecialTokens how) {
    if (text.empty()) return;
    if (data_.normalizer == Normalizer::nfc) text = normalize_nfc(text, normalized_);
    if (how == SpecialTokens::parse) {
      while (const auto m = data_.added_normalized.find(text, 0, text.size())) {
        words(text.substr(0, m->begin));
        ids_.push_back(int32_t(m->id));
        text.remove_prefix(m->end);
      }
    }
    words(text);
  }

  void words(std::string_view text) {
    if (!data_.single_digits) return stretch(text);
    size_t begin = 0;
    for (size_t at = 0; at < text.size();) {
      const CodePoint c = decode_valid(text.data() + at);
      if (UnicodeTable::instance().char_class(c.value) == CharClass::number) {
        stretch(text.substr(begin, at - begin));
        stretch(text.substr(at, c.length));
        begin = at + c.length;
      }
      at += c.length;
    }
    stretch(text.substr(begin));
  }

  // Text that is cut by the pattern alone.
  void stretch(std::string_view text) {
    ends_.clear();
    if (data_.regex) {
      data_.regex->split(text, ends_);
    } else {
      split_qwen(text, ends_);
    }
    size_t begin = 0;
    for (const uint32_t end : ends_) {
      data_.bpe->encode(text.substr(begin, end - begin), data_.vocabulary, ids_);
      begin = end;
    }
  }

  const TokenizerData& data_;
  std::string normalized_;
  std::vector<uint32_t> ends_;
  std::vector<int32_t> ids_;
};

void check_length(size_t n) {
  if (n > kMaxText) {
    throw_usage("cannot encode a text of {} bytes at once (limit {}); split it", n, kMaxText);
  }
}

}  // namespace

Tokenizer Tokenizer::load(const std::filesystem::path& path) {
  return parse(read_text_file(path, kMaxTokenizerJson), path.string());
}

Tokenizer Tokenizer::parse(std::string_view json, const std::string& name) {
  return Tokenizer(std::make_shared<const TokenizerData>(read_tokenizer_json(json, name)));
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, SpecialTokens how) const {
  const TextPiece piece{text, how};
  return encode(std::span(&piece, 1));
}

std::vector<int32_t> Tokenizer::encode(std::span<const TextPiece> pieces) const {
  size_t total = 0;
  for (const TextPiece& p : pieces) check_length(total += p.text.size());
  // The joined text; a single valid piece needs no copy.
  std::string joined;
  std::string_view text;
  std::vector<Region> regions;
  if (pieces.size() == 1 && valid_utf8_prefix(pieces[0].text) == total) {
    text = pieces[0].text;
    regions.push_back({0, total, pieces[0].special});
  } else {
    for (const TextPiece& p : pieces) {
      const size_t begin = joined.size();
      joined += valid_utf8_prefix(p.text) == p.text.size() ? p.text : repair_utf8(p.text);
      if (!regions.empty() && regions.back().special == p.special) {
        regions.back().end = joined.size();
      } else {
        regions.push_back({begin, joined.size(), p.special});
      }
    }
    check_length(joined.size());
    text = joined;
  }
  if (regions.size() == 1 || data_->added_normalized.empty()) {
    return Encoding(*data_).run(text, regions);
  }
  std::vector<int32_t> ids;
  for (const Region& r : regions) {
    const Region whole{0, r.end - r.begin, r.special};
    const auto part = Encoding(*data_).run(text.substr(r.begin, whole.end), std::span(&whole, 1));
    ids.insert(ids.end(), part.begin(), part.end());
  }
  return ids;
}

std::string Tokenizer::decode(std::span<const int32_t> ids, DecodeSpecial special) const {
  StreamDecoder decoder(*this, special);
  std::string out;
  for (const int32_t id : ids) decoder.push(id, out);
  out += decoder.flush();
  return out;
}

int32_t Tokenizer::vocab_size() const { return int32_t(data_->vocabulary.size()); }

std::string_view Tokenizer::token_bytes(int32_t id) const {
  if (id < 0 || id >= vocab_size()) return {};
  return data_->vocabulary.bytes(uint32_t(id));
}

std::string Tokenizer::token_text(int32_t id) const {
  if (id < 0 || id >= vocab_size()) return {};
  return data_->vocabulary.spelled(uint32_t(id));
}

std::optional<int32_t> Tokenizer::id_of(std::string_view token_text) const {
  const auto id = data_->vocabulary.find_spelled(token_text);
  return id ? std::optional(int32_t(*id)) : std::nullopt;
}

bool Tokenizer::is_added(int32_t id) const {
  return id >= 0 && id < vocab_size() && (data_->flags[size_t(id)] & TokenizerData::added);
}
bool Tokenizer::is_special(int32_t id) const {
  return id >= 0 && id < vocab_size() && (data_->flags[size_t(id)] & TokenizerData::special);
}

std::optional<int32_t> Tokenizer::im_start() const { return data_->im_start; }
std::optional<int32_t> Tokenizer::im_end() const { return data_->im_end; }
std::optional<int32_t> Tokenizer::endoftext() const { return data_->endoftext; }
uint64_t Tokenizer::content_hash() const { return data_->content_hash; }

}  // namespace nibble
