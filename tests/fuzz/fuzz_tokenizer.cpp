// SPDX-License-Identifier: MIT
// Reads bytes as tokenizer.json. The first byte chooses: the whole file, or one section of a small
// good file, which reaches deeper. What loads must encode and decode without breaking its promises.
#include <cstdint>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "core/error.h"
#include "tokenizer/mini_tokenizer.h"
#include "tokenizer/stream_decoder.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/unicode.h"

namespace {

// Built once: making the document costs far more than reading it.
const std::string& good_file() {
  static const std::string text = nibble::test::mini_tokenizer_text();
  return text;
}

// The good file with the value at `path` replaced by the JSON text `value`.
std::string with_section(const char* path, const std::string& value) {
  static std::map<std::string, std::string> known;
  std::string& text = known[path];
  if (text.empty()) {
    nibble::test::Json document = nibble::test::mini_tokenizer();
    document[nibble::test::Json::json_pointer(path)] = "@@";
    text = document.dump();
  }
  std::string changed = text;
  return changed.replace(changed.find("\"@@\""), 4, value);
}

std::string document(uint8_t choice, const std::string& rest) {
  switch (choice % 8) {
    case 0: return rest;
    case 1: return with_section("/added_tokens", rest);
    case 2: return with_section("/model/merges", rest);
    case 3: return with_section("/pre_tokenizer", rest);
    case 4: return with_section("/normalizer", rest);
    case 5: {  // more vocabulary
      std::string text = good_file();
      return text.insert(text.find("\"vocab\":{") + 9, rest);
    }
    case 6:  // a pattern, without having to find the quoting
      return with_section("/pre_tokenizer/pretokenizers/0/pattern/Regex",
                          nibble::test::Json(nibble::repair_utf8(rest)).dump());
    default: {  // some bytes overwritten: offset and value in turn
      std::string text = good_file();
      for (size_t i = 0; i + 2 < rest.size(); i += 3) {
        const size_t at = size_t(uint8_t(rest[i])) << 8 | uint8_t(rest[i + 1]);
        text[at % text.size()] = rest[i + 2];
      }
      return text;
    }
  }
}

void require(bool holds) {
  if (!holds) std::abort();
}

void use(const nibble::Tokenizer& t, const std::string& text) {
  using nibble::SpecialTokens;
  for (const SpecialTokens how : {SpecialTokens::parse, SpecialTokens::plain}) {
    const auto ids = t.encode(text, how);
    for (const int32_t id : ids) require(id >= 0 && id < t.vocab_size());
    nibble::StreamDecoder stream(t);
    std::string streamed;
    for (const int32_t id : ids) streamed += stream.push(id);
    streamed += stream.flush();
    const std::string whole = t.decode(ids);
    require(streamed == whole);
    require(nibble::valid_utf8_prefix(whole) == whole.size());
    if (how == SpecialTokens::plain) {
      std::string storage;
      const std::string repaired = nibble::repair_utf8(text);
      require(whole == repaired || whole == nibble::normalize_nfc(repaired, storage));
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  try {
    const auto t = nibble::Tokenizer::parse(document(data[0], rest), "fuzz");
    use(t, "hello  world<|im_end|>\n\xe4\xbd\xa0 a\xcc\x81 \xff 12's");
    use(t, rest);
  } catch (const nibble::FormatError&) {
  }
  return 0;
}
