// SPDX-License-Identifier: MIT
// Reads tokenizer.json. Accepted: byte-level BPE; normalizer null or NFC; pre_tokenizer ByteLevel,
// alone, after Digits one by one, or after one Split by a regular expression (Isolated); decoder
// ByteLevel; post_processor null, ByteLevel or TemplateProcessing (which adds tokens at the ends of
// a text, and here none ever are). Anything else that would change ids or text is refused by name.
// Ids must be 0 .. n-1 without holes: a hole in such a file is damage more often than intent.
#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <set>

#include "core/error.h"
#include "core/hash.h"
#include "core/json.h"
#include "tokenizer/json_reader.h"
#include "tokenizer/tokenizer_data.h"
#include "tokenizer/unicode.h"

namespace nibble {
namespace {

using nlohmann::json;

// The small sections become a document tree, which takes many times the memory of its text.
constexpr size_t kMaxSmallSection = 4u << 20;

class Loader {
 public:
  Loader(std::string_view text, const std::string& name) : reader_(text, name), name_(name) {}
  TokenizerData load();

 private:
  void read_document();
  void read_model();
  void read_vocabulary();
  void assign_ids();
  void read_merges();
  std::optional<uint32_t> find_result(std::string_view bytes) const;
  void add_merge(std::string_view left, std::string_view right);
  void read_added_tokens();
  void read_pre_tokenizer(const json& j);
  void read_byte_level(const json& j, const char* where, bool& use_regex);
  void read_pattern(const json& j);
  void use_pattern(const std::string& pattern);
  void read_normalizer(const json& j);
  void read_post_processor(const json& j);
  void finish();
  uint64_t hash() const;

  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> f, Args&&... args) const {
    throw_format("{}: {}", name_, fmt::format(f, std::forward<Args>(args)...));
  }
  json small_section(std::string_view what, std::string_view text) const;
  void only_keys(const json& j, std::string_view where,
                 std::initializer_list<std::string_view> known) const;
  bool flag(const json& j, const char* key, bool otherwise) const;
  std::string text_of(const json& j, const char* key) const;

  JsonReader reader_;
  std::string name_;
  TokenizerData data_;
  std::vector<Merge> merges_;
  std::vector<AddedToken> added_;
  json sections_ = json::object(), model_ = json::object();
  bool have_vocabulary_ = false, have_ids_ = false, have_merges_ = false;
  size_t merges_at_ = 0;
  std::string pattern_;
  std::string scratch_, scratch2_, merged_;
};

json Loader::small_section(std::string_view what, std::string_view text) const {
  if (text.size() > kMaxSmallSection) {
    fail("{} has {} bytes, more than {}", what, text.size(), kMaxSmallSection);
  }
  try {
    return parse_json<json>(text);
  } catch (const json::exception& e) {
    fail("{}: {}", what, e.what());
  }
}

void Loader::only_keys(const json& j, std::string_view where,
                       std::initializer_list<std::string_view> known) const {
  if (!j.is_object()) fail("{} is not an object", where);
  for (const auto& item : j.items()) {
    if (std::find(known.begin(), known.end(), item.key()) == known.end()) {
      fail("{} has the unknown key '{}', whose meaning may matter", where, item.key());
    }
  }
}

bool Loader::flag(const json& j, const char* key, bool otherwise) const {
  const auto at = j.find(key);
  if (at == j.end()) return otherwise;
  if (!at->is_boolean()) fail("'{}' is not true or false", key);
  return at->get<bool>();
}

std::string Loader::text_of(const json& j, const char* key) const {
  const auto at = j.find(key);
  if (at == j.end() || !at->is_string()) fail("'{}' is missing or not a string", key);
  return at->get<std::string>();
}

void Loader::read_document() {
  bool first = true;
  std::string_view key;
  while (reader_.next_member(first, key, scratch_)) {
    const std::string k(key);
    if (k == "model") {
      if (have_vocabulary_) reader_.fail("a second 'model'");
      read_model();
      continue;
    }
    const bool known = k == "version" || k == "truncation" || k == "padding" ||
                       k == "added_tokens" || k == "normalizer" || k == "pre_tokenizer" ||
                       k == "post_processor" || k == "decoder";
    if (!known) reader_.fail(fmt::format("unknown key '{}', whose meaning may matter", k));
    if (sections_.contains(k)) reader_.fail(fmt::format("a second '{}'", k));
    sections_[k] = small_section(k, reader_.skip_value());
  }
  reader_.expect_end();
  if (!have_vocabulary_) fail("no model with a vocabulary");
}

void Loader::read_model() {
  bool first = true;
  std::string_view key;
  while (reader_.next_member(first, key, scratch_)) {
    const std::string k(key);
    if (k == "vocab") {
      if (have_vocabulary_) reader_.fail("a second 'vocab'");
      read_vocabulary();
      have_vocabulary_ = true;
    } else if (k == "merges") {
      if (merges_at_) reader_.fail("a second 'merges'");
      reader_.peek();
      merges_at_ = reader_.offset();
      if (have_vocabulary_ && sections_.contains("added_tokens")) {  // the usual order
        assign_ids();
        read_merges();
      } else {
        reader_.skip_value();
      }
    } else {
      if (model_.contains(k)) reader_.fail(fmt::format("a second '{}' in the model", k));
      model_[k] = small_section(k, reader_.skip_value());
    }
  }
  if (!have_vocabulary_) reader_.fail("the model has no 'vocab'");
  if (!merges_at_) reader_.fail("the model has no 'merges'");
  only_keys(model_, "model",
            {"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
             "fuse_unk", "byte_fallback", "ignore_merges"});
  if (model_.contains("type") && model_["type"] != "BPE") {
    fail("model type {} is not supported, only BPE is", model_["type"].dump());
  }
  // unk_token, fuse_unk and byte_fallback speak of characters outside the vocabulary; finish() sees
  // to those.
  for (const char* k : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (model_.contains(k) && !model_[k].is_null() && model_[k] != "") {
      fail("model: '{}' is not supported", k);
    }
  }
  if (model_.contains("dropout") && !model_["dropout"].is_null() && model_["dropout"] != 0) {
    fail("model: 'dropout' is not supported");
  }
}

void Loader::read_vocabulary() {
  reader_.set_section("model.vocab");
  // A token takes some 60 bytes of a file with its merge: room for all, and never out of
  // proportion.
  data_.vocabulary.reserve(reader_.text().size() / 64);
  bool first = true;
  std::string_view key;
  while (reader_.next_member(first, key, scratch_)) {
    if (key.empty()) reader_.fail("an empty token");
    const uint32_t entries = data_.vocabulary.size();
    const bool fresh = data_.vocabulary.add(key, 0).fresh;
    if (!fresh) reader_.fail(fmt::format("the token '{}' stands there twice", key));
    data_.vocabulary.set_id(entries, reader_.read_uint32());
  }
  reader_.set_section("");
}

void Loader::read_merges() {
  reader_.set_section("model.merges");
  bool first = true;
  while (reader_.next_element(first)) {
    if (reader_.peek() == '[') {
      bool first_part = true;
      if (!reader_.next_element(first_part)) reader_.fail("an empty merge");
      const std::string_view left = reader_.read_string(scratch_);
      if (!reader_.next_element(first_part)) reader_.fail("a merge of one token");
      const std::string_view right = reader_.read_string(scratch2_);
      if (reader_.next_element(first_part)) reader_.fail("a merge of more than two tokens");
      add_merge(left, right);
    } else {
      const std::string_view line = reader_.read_string(scratch_);
      const size_t space = line.find(' ');
      if (space == line.npos || line.find(' ', space + 1) != line.npos) {
        reader_.fail("a merge must be two tokens with one space between them");
      }
      add_merge(line.substr(0, space), line.substr(space + 1));
    }
  }
  have_merges_ = true;
  reader_.set_section("");
}

// Files list the tokens in the order of the merges that make them, so the next id is a good guess
// and spares a search through the hash table.
std::optional<uint32_t> Loader::find_result(std::string_view bytes) const {
  const uint32_t guess = merges_.empty() ? 256 : merges_.back().result + 1;
  const Vocabulary& v = data_.vocabulary;
  if (guess < v.size() && v.bytes(guess) == bytes &&
      v.spelling(guess) == Vocabulary::Spelling::alphabet) {
    return guess;
  }
  return v.find_bytes(bytes);
}

void Loader::add_merge(std::string_view left, std::string_view right) {
  const ByteAlphabet& alphabet = ByteAlphabet::instance();
  std::string& bytes = merged_;
  bytes.clear();
  const bool left_ok = alphabet.append_bytes(bytes, left);
  const size_t middle = bytes.size();
  if (!left_ok || !alphabet.append_bytes(bytes, right)) {
    reader_.fail(
        fmt::format("merge '{} {}' names characters outside the byte alphabet", left, right));
  }
  const std::string_view whole = bytes;
  const auto a = data_.vocabulary.find_bytes(whole.substr(0, middle));
  const auto b = data_.vocabulary.find_bytes(whole.substr(middle));
  const auto ab = find_result(whole);
  if (!a || !b || !ab) {
    const std::string_view unknown = !a ? left : right;
    reader_.fail(
        !a || !b
            ? fmt::format("merge '{} {}' names the unknown token '{}'", left, right, unknown)
            : fmt::format("merge '{} {}' makes a token that the vocabulary lacks", left, right));
  }
  if (data_.flags[*ab] & TokenizerData::special) {
    reader_.fail(fmt::format("merge '{} {}' makes a special token: plain text would become one",
                             left, right));
  }
  merges_.push_back({*a, *b, uint32_t(merges_.size()), *ab});
}

void Loader::read_added_tokens() {
  const json& list = sections_["added_tokens"];
  if (list.is_null()) return;
  if (!list.is_array()) fail("added_tokens is not an array");
  std::set<std::string> seen;
  for (const json& j : list) {
    only_keys(j, "an added token",
              {"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
    AddedToken t;
    t.content = text_of(j, "content");
    if (t.content.empty()) fail("an added token is empty");
    if (!seen.insert(t.content).second) fail("added token '{}' stands there twice", t.content);
    const auto id = j.find("id");
    if (id == j.end() || !id->is_number_unsigned() || id->get<uint64_t>() > INT32_MAX) {
      fail("added token '{}': the id is missing or no token id", t.content);
    }
    t.id = id->get<uint32_t>();
    t.special = flag(j, "special", false);
    t.normalized = flag(j, "normalized", !t.special);
    t.lstrip = flag(j, "lstrip", false);
    t.rstrip = flag(j, "rstrip", false);
    if (flag(j, "single_word", false)) {
      fail("added token '{}': single_word is not supported", t.content);
    }
    const auto [entry, fresh] = data_.vocabulary.add(t.content, t.id);
    if (!fresh && data_.vocabulary.id_at(entry) != t.id) {
      fail("added token '{}' has the id {}, but the vocabulary says {}", t.content, t.id,
           data_.vocabulary.id_at(entry));
    }
    added_.push_back(std::move(t));
  }
}

void Loader::assign_ids() {
  read_added_tokens();
  if (const auto problem = data_.vocabulary.seal()) {
    fail("the id {} is used {}", problem->id, problem->duplicate ? "twice" : "by no token");
  }
  data_.flags.assign(data_.vocabulary.size(), 0);
  for (const AddedToken& t : added_) {
    data_.flags[t.id] = uint8_t(TokenizerData::added | (t.special ? TokenizerData::special : 0));
  }
  have_ids_ = true;
}

void Loader::read_normalizer(const json& j) {
  if (j.is_null()) return;
  if (!j.is_object()) fail("normalizer is not an object");
  const std::string type = text_of(j, "type");
  if (type == "Sequence") {
    only_keys(j, "normalizer", {"type", "normalizers"});
    if (!j.contains("normalizers") || !j["normalizers"].is_array()) fail("normalizer: no list");
    for (const json& part : j["normalizers"]) {
      if (!part.is_object() || part.value("type", json()) == "Sequence")
        fail("normalizer: a nested list");
      read_normalizer(part);
    }
    return;
  }
  if (type != "NFC") fail("normalizer '{}' is not supported, only NFC is", type);
  only_keys(j, "normalizer", {"type"});
  data_.normalizer = Normalizer::nfc;
}

void Loader::read_byte_level(const json& j, const char* where, bool& use_regex) {
  if (!j.is_object() || text_of(j, "type") != "ByteLevel")
    fail("{}: only ByteLevel is supported", where);
  only_keys(j, where, {"type", "add_prefix_space", "trim_offsets", "use_regex"});
  use_regex = flag(j, "use_regex", true);
}

void Loader::use_pattern(const std::string& pattern) {
  pattern_ = pattern;
  if (pattern == kQwenPattern) return;
  try {
    data_.regex.emplace(pattern);
  } catch (const UsageError& e) {
    fail("pre_tokenizer: {}", e.what());
  }
}

void Loader::read_pattern(const json& j) {
  only_keys(j, "pre_tokenizer Split", {"type", "pattern", "behavior", "invert"});
  if (text_of(j, "behavior") != "Isolated") fail("pre_tokenizer: Split must be Isolated");
  if (flag(j, "invert", false)) fail("pre_tokenizer: an inverted Split is not supported");
  if (!j.contains("pattern")) fail("pre_tokenizer: Split without a pattern");
  only_keys(j["pattern"], "pre_tokenizer pattern", {"Regex"});
  use_pattern(text_of(j["pattern"], "Regex"));
}

void Loader::read_pre_tokenizer(const json& j) {
  if (!j.is_object()) fail("pre_tokenizer is missing; byte-level BPE needs ByteLevel");
  json parts = json::array({j});
  if (text_of(j, "type") == "Sequence") {
    only_keys(j, "pre_tokenizer", {"type", "pretokenizers"});
    if (!j.contains("pretokenizers") || !j["pretokenizers"].is_array())
      fail("pre_tokenizer: no list");
    parts = j["pretokenizers"];
  }
  if (parts.empty() || parts.size() > 2) {
    fail("pre_tokenizer: expected ByteLevel, alone or after Split or Digits");
  }
  bool use_regex = false;
  read_byte_level(parts.back(), "pre_tokenizer", use_regex);
  if (flag(parts.back(), "add_prefix_space", true)) {
    fail("pre_tokenizer: add_prefix_space is not supported");
  }
  if (parts.size() == 2 && parts[0].is_object() && text_of(parts[0], "type") == "Digits") {
    only_keys(parts[0], "pre_tokenizer Digits", {"type", "individual_digits"});
    if (!flag(parts[0], "individual_digits", false) || !use_regex) {
      fail("pre_tokenizer: Digits must be one by one, and ByteLevel after it have use_regex true");
    }
    data_.single_digits = true;
    use_pattern(std::string(kGpt2Pattern));
  } else if (parts.size() == 2) {
    if (!parts[0].is_object() || text_of(parts[0], "type") != "Split" || use_regex) {
      fail("pre_tokenizer: only Split, then ByteLevel with use_regex false, is supported");
    }
    read_pattern(parts[0]);
  } else {
    if (!use_regex) fail("pre_tokenizer: ByteLevel alone must have use_regex true");
    use_pattern(std::string(kGpt2Pattern));
  }
}

void Loader::read_post_processor(const json& j) {
  if (j.is_null()) return;
  const std::string type = j.is_object() ? text_of(j, "type") : "";
  if (type == "TemplateProcessing") return;
  if (type != "Sequence") {
    bool unused = false;
    return read_byte_level(j, "post_processor", unused);
  }
  only_keys(j, "post_processor", {"type", "processors"});
  if (!j.contains("processors") || !j["processors"].is_array()) fail("post_processor: no list");
  for (const json& part : j["processors"]) {
    if (!part.is_object() || part.value("type", json()) == "Sequence") {
      fail("post_processor: a nested list");
    }
    read_post_processor(part);
  }
}

void Loader::finish() {
  std::array<uint32_t, 256> byte_ids;
  for (uint32_t b = 0; b < 256; ++b) {
    const char byte = char(b);
    const auto id = data_.vocabulary.find_bytes(std::string_view(&byte, 1));
    if (!id && b >= 0x20 && b < 0x7f) {
      fail("the vocabulary lacks the token of '{}'; byte-level BPE needs all of ASCII", byte);
    }
    if (!id && model_.contains("unk_token") && !model_["unk_token"].is_null()) {
      fail("the vocabulary lacks the token of byte 0x{:02x}, and an unk_token is not supported", b);
    }
    byte_ids[b] = id.value_or(Bpe::kNoToken);
  }
  MergeTable table(merges_.size());
  for (const Merge& m : merges_) {
    if (!table.insert(m)) {
      fail("model.merges: '{} {}' stands there twice", data_.vocabulary.spelled(m.left),
           data_.vocabulary.spelled(m.right));
    }
  }
  std::vector<uint32_t> added_ids;
  std::vector<AddedToken> raw, normalized;
  for (AddedToken& t : added_) {
    added_ids.push_back(t.id);
    if (t.content == "<|im_start|>") data_.im_start = int32_t(t.id);
    if (t.content == "<|im_end|>") data_.im_end = int32_t(t.id);
    if (t.content == "<|endoftext|>") data_.endoftext = int32_t(t.id);
    if (t.normalized && data_.normalizer == Normalizer::nfc) {
      std::string storage;
      t.content = std::string(normalize_nfc(t.content, storage));
    }
    (t.normalized ? normalized : raw).push_back(t);
  }
  std::vector<AddedToken> words = raw;
  std::erase_if(words, [](const AddedToken& t) { return t.special; });
  data_.added_words = AddedTokenFinder(std::move(words));
  data_.added_raw = AddedTokenFinder(std::move(raw));
  data_.added_normalized = AddedTokenFinder(std::move(normalized));
  bool ignore_merges = flag(model_, "ignore_merges", false);
  data_.bpe.emplace(byte_ids, merges_, std::move(table),
                    ignore_merges ? WholeWord::always : WholeWord::when_merges_agree,
                    data_.vocabulary, added_ids);
  data_.content_hash = hash();
}

uint64_t Loader::hash() const {
  uint64_t h = hash_bytes("nibble tokenizer 1", 0);
  for (uint32_t id = 0; id < data_.vocabulary.size(); ++id) {
    h = hash_bytes(data_.vocabulary.bytes(id), h + uint64_t(data_.vocabulary.spelling(id)));
  }
  for (const Merge& m : merges_) {
    const uint32_t pair[] = {m.left, m.right};
    h = hash_bytes({reinterpret_cast<const char*>(pair), sizeof pair}, h);
  }
  std::vector<AddedToken> added = added_;
  std::sort(added.begin(), added.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
  for (const AddedToken& t : added) {
    const uint8_t flags[] = {t.special, t.normalized, t.lstrip, t.rstrip};
    h = hash_bytes({reinterpret_cast<const char*>(flags), sizeof flags}, h + t.id);
  }
  h = hash_bytes(pattern_, h + uint64_t(data_.normalizer));
  if (data_.single_digits) h = hash_bytes("digits", h);
  return hash_bytes(flag(model_, "ignore_merges", false) ? "whole" : "merges", h);
}

TokenizerData Loader::load() {
  if (reader_.text().size() > kMaxTokenizerJson) {
    fail("{} bytes is more than a tokenizer.json may have ({})", reader_.text().size(),
         kMaxTokenizerJson);
  }
  const size_t valid = valid_utf8_prefix(reader_.text());
  if (valid != reader_.text().size()) fail("byte {} is not UTF-8", valid);
  read_document();
  for (const char* k : {"truncation", "padding"}) {
    if (sections_.contains(k) && !sections_[k].is_null())
      fail("'{}' is not supported; it must be null", k);
  }
  if (sections_.contains("version") && sections_["version"] != "1.0") {
    fail("version {} is not supported, only \"1.0\" is", sections_["version"].dump());
  }
  read_normalizer(sections_["normalizer"]);
  read_pre_tokenizer(sections_["pre_tokenizer"]);
  bool unused = false;
  read_post_processor(sections_["post_processor"]);
  read_byte_level(sections_["decoder"], "decoder", unused);
  if (!have_ids_) assign_ids();
  if (!have_merges_) {
    reader_.seek(merges_at_);
    read_merges();
  }
  finish();
  return std::move(data_);
}

}  // namespace

TokenizerData read_tokenizer_json(std::string_view json_text, const std::string& name) {
  return Loader(json_text, name).load();
}

}  // namespace nibble
