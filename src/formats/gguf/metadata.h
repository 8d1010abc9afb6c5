// SPDX-License-Identifier: MIT
// The key-value pairs of a GGUF, with typed access that says what was wanted and what was found.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace nibble {

// As numbered in the file.
enum class GgufType : uint32_t {
  u8,
  i8,
  u16,
  i16,
  u32,
  i32,
  f32,
  boolean,
  string,
  array,
  u64,
  i64,
  f64,
};
std::string_view gguf_type_name(GgufType type);  // "u32"

// Arrays hold one kind of element; arrays of arrays are refused when a file is read.
using GgufIntegers = std::vector<int64_t>;
using GgufNumbers = std::vector<double>;
using GgufStrings = std::vector<std::string>;

struct GgufValue {
  GgufType type = GgufType::u8;
  GgufType element = GgufType::u8;  // of an array
  uint64_t offset = 0;              // in the file, for messages
  std::variant<int64_t, uint64_t, double, bool, std::string, GgufIntegers, GgufNumbers, GgufStrings>
      value;

  std::string describe() const;  // "an array of 3 i32", "a string"
  std::string spell() const;     // the same, but numbers as they are: "-1"
};

class GgufMetadata {
 public:
  explicit GgufMetadata(std::string where = {}) : where_(std::move(where)) {}

  bool add(std::string key, GgufValue value);  // false when the key is there already
  // For a file to be written; what the key had before goes.
  void set_text(std::string key, std::string text);
  void set_u32(std::string key, uint64_t value);
  void set_f32(std::string key, double value);
  void set_flag(std::string key, bool value);
  void set_texts(std::string key, GgufStrings texts);
  void set_i32s(std::string key, GgufIntegers values);
  const std::map<std::string, GgufValue, std::less<>>& values() const { return values_; }
  bool has(std::string_view key) const { return values_.contains(key); }

  // FormatErrors name the file, the key, its offset, and what was wanted. The first of each pair
  // wants the key to be there.
  int64_t integer(std::string_view key) const;
  int64_t integer(std::string_view key, int64_t least, int64_t most) const;
  std::optional<int64_t> find_integer(std::string_view key) const;
  std::optional<int64_t> find_integer(std::string_view key, int64_t least, int64_t most) const;
  // Finite; integers, too.
  double number(std::string_view key) const;
  std::optional<double> find_number(std::string_view key) const;
  const std::string& text(std::string_view key) const;
  const std::string* find_text(std::string_view key) const;
  const GgufStrings& texts(std::string_view key) const;
  const GgufStrings* find_texts(std::string_view key) const;
  const GgufIntegers& integers(std::string_view key) const;
  const GgufIntegers* find_integers(std::string_view key) const;
  std::optional<bool> find_flag(std::string_view key) const;

  // A value that is there and cannot be: "the metadata's 'k' is 0, expected {wanted} (offset 8)".
  [[noreturn]] void refuse(std::string_view key, std::string_view wanted) const;

  const std::string& where() const { return where_; }  // the file

 private:
  const GgufValue* find(std::string_view key) const;
  [[noreturn]] void missing(std::string_view key) const;
  [[noreturn]] void wrong(std::string_view key, const GgufValue& v, std::string_view wanted) const;
  template <class T>
  const T* find_as(std::string_view key, std::string_view wanted) const;

  std::string where_;
  std::map<std::string, GgufValue, std::less<>> values_;
};

}  // namespace nibble
