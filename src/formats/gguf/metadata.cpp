// SPDX-License-Identifier: MIT
#include "formats/gguf/metadata.h"

#include <cmath>
#include <limits>

#include "core/error.h"

namespace nibble {

std::string_view gguf_type_name(GgufType type) {
  constexpr std::string_view kNames[] = {"u8",      "i8",     "u16",   "i16", "u32", "i32", "f32",
                                         "boolean", "string", "array", "u64", "i64", "f64"};
  return kNames[size_t(type)];
}

std::string GgufValue::describe() const {
  if (type != GgufType::array) {
    const bool text = type == GgufType::string;
    return fmt::format("a {}", text ? "string" : gguf_type_name(type));
  }
  const size_t n = std::visit(
      [](const auto& v) -> size_t {
        if constexpr (requires { v.size(); }) return v.size();
        return 0;
      },
      value);
  return fmt::format("an array of {} {}", n, gguf_type_name(element));
}

std::string GgufValue::spell() const {
  return std::visit(
      [&](const auto& v) -> std::string {
        if constexpr (std::is_arithmetic_v<std::decay_t<decltype(v)>>) return fmt::format("{}", v);
        return describe();
      },
      value);
}

bool GgufMetadata::add(std::string key, GgufValue value) {
  return values_.emplace(std::move(key), std::move(value)).second;
}

void GgufMetadata::set_text(std::string key, std::string text) {
  values_[std::move(key)] = {GgufType::string, GgufType::u8, 0, std::move(text)};
}
void GgufMetadata::set_u32(std::string key, uint64_t value) {
  if (value > std::numeric_limits<uint32_t>::max()) throw_internal("{} is {}", key, value);
  values_[std::move(key)] = {GgufType::u32, GgufType::u8, 0, int64_t(value)};
}
void GgufMetadata::set_f32(std::string key, double value) {
  values_[std::move(key)] = {GgufType::f32, GgufType::u8, 0, value};
}
void GgufMetadata::set_flag(std::string key, bool value) {
  values_[std::move(key)] = {GgufType::boolean, GgufType::u8, 0, value};
}
void GgufMetadata::set_texts(std::string key, GgufStrings texts) {
  values_[std::move(key)] = {GgufType::array, GgufType::string, 0, std::move(texts)};
}
void GgufMetadata::set_i32s(std::string key, GgufIntegers values) {
  values_[std::move(key)] = {GgufType::array, GgufType::i32, 0, std::move(values)};
}

const GgufValue* GgufMetadata::find(std::string_view key) const {
  const auto it = values_.find(key);
  return it == values_.end() ? nullptr : &it->second;
}

void GgufMetadata::missing(std::string_view key) const {
  throw_format("{}: the metadata has no '{}'", where_, key);
}

void GgufMetadata::wrong(std::string_view key, const GgufValue& v, std::string_view wanted) const {
  throw_format("{}: the metadata's '{}' is {}, expected {} (offset {})", where_, key, v.describe(),
               wanted, v.offset);
}

void GgufMetadata::refuse(std::string_view key, std::string_view wanted) const {
  const GgufValue* v = find(key);
  if (!v) missing(key);
  throw_format("{}: the metadata's '{}' is {}, expected {} (offset {})", where_, key, v->spell(),
               wanted, v->offset);
}

template <class T>
const T* GgufMetadata::find_as(std::string_view key, std::string_view wanted) const {
  const GgufValue* v = find(key);
  if (!v) return nullptr;
  const T* found = std::get_if<T>(&v->value);
  if (!found) wrong(key, *v, wanted);
  return found;
}

std::optional<int64_t> GgufMetadata::find_integer(std::string_view key) const {
  const GgufValue* v = find(key);
  if (!v) return std::nullopt;
  if (const auto* i = std::get_if<int64_t>(&v->value)) return *i;
  if (const auto* u = std::get_if<uint64_t>(&v->value)) {
    if (*u <= uint64_t(std::numeric_limits<int64_t>::max())) return int64_t(*u);
  }
  wrong(key, *v, "an integer of 63 bits");
}
std::optional<int64_t> GgufMetadata::find_integer(std::string_view key, int64_t least,
                                                  int64_t most) const {
  const auto v = find_integer(key);
  if (v && (*v < least || *v > most)) refuse(key, fmt::format("{}..{}", least, most));
  return v;
}
std::optional<double> GgufMetadata::find_number(std::string_view key) const {
  const GgufValue* v = find(key);
  if (!v) return std::nullopt;
  if (const auto* x = std::get_if<double>(&v->value)) {
    if (!std::isfinite(*x)) refuse(key, "a finite number");
    return *x;
  }
  if (const auto* i = std::get_if<int64_t>(&v->value)) return double(*i);
  if (const auto* u = std::get_if<uint64_t>(&v->value)) return double(*u);
  wrong(key, *v, "a number");
}
const std::string* GgufMetadata::find_text(std::string_view key) const {
  return find_as<std::string>(key, "a string");
}
const GgufStrings* GgufMetadata::find_texts(std::string_view key) const {
  return find_as<GgufStrings>(key, "an array of strings");
}
const GgufIntegers* GgufMetadata::find_integers(std::string_view key) const {
  return find_as<GgufIntegers>(key, "an array of integers");
}
std::optional<bool> GgufMetadata::find_flag(std::string_view key) const {
  const bool* found = find_as<bool>(key, "a boolean");
  return found ? std::optional(*found) : std::nullopt;
}

int64_t GgufMetadata::integer(std::string_view key) const {
  const auto v = find_integer(key);
  return v ? *v : (missing(key), 0);
}
int64_t GgufMetadata::integer(std::string_view key, int64_t least, int64_t most) const {
  const auto v = find_integer(key, least, most);
  return v ? *v : (missing(key), 0);
}
double GgufMetadata::number(std::string_view key) const {
  const auto v = find_number(key);
  return v ? *v : (missing(key), 0);
}
const std::string& GgufMetadata::text(std::string_view key) const {
  const std::string* v = find_text(key);
  if (!v) missing(key);
  return *v;
}
const GgufStrings& GgufMetadata::texts(std::string_view key) const {
  const GgufStrings* v = find_texts(key);
  if (!v) missing(key);
  return *v;
}
const GgufIntegers& GgufMetadata::integers(std::string_view key) const {
  const GgufIntegers* v = find_integers(key);
  if (!v) missing(key);
  return *v;
}

}  // namespace nibble
