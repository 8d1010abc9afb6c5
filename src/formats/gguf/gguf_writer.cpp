// SPDX-License-Identifier: MIT
#include "formats/gguf/gguf_writer.h"

#include <cstring>

#include "core/error.h"
#include "formats/gguf/block_types.h"

namespace nibble {
namespace {

template <class T>
void put(std::string& out, T value) {
  char bytes[sizeof value];
  std::memcpy(bytes, &value, sizeof value);
  out.append(bytes, sizeof value);
}
void put_text(std::string& out, std::string_view text) {
  put(out, uint64_t(text.size()));
  out += text;
}

// A number of any of the format's types, from the widest of its kind.
template <class T>
void put_number(std::string& out, GgufType type, T x) {
  switch (type) {
    case GgufType::u8: return put(out, uint8_t(x));
    case GgufType::i8: return put(out, int8_t(x));
    case GgufType::u16: return put(out, uint16_t(x));
    case GgufType::i16: return put(out, int16_t(x));
    case GgufType::u32: return put(out, uint32_t(x));
    case GgufType::i32: return put(out, int32_t(x));
    case GgufType::f32: return put(out, float(x));
    case GgufType::boolean: return put(out, uint8_t(x != 0));
    case GgufType::u64: return put(out, uint64_t(x));
    case GgufType::i64: return put(out, int64_t(x));
    case GgufType::f64: return put(out, double(x));
    case GgufType::string:
    case GgufType::array: break;
  }
  throw_internal("a number as a GGUF's {}", gguf_type_name(type));
}

void put_value(std::string& out, const GgufValue& v) {
  put(out, uint32_t(v.type));
  std::visit(
      [&](const auto& x) {
        using T = std::decay_t<decltype(x)>;
        if constexpr (std::is_arithmetic_v<T>) {
          put_number(out, v.type, x);
        } else if constexpr (std::is_same_v<T, std::string>) {
          put_text(out, x);
        } else {
          put(out, uint32_t(v.element));
          put(out, uint64_t(x.size()));
          for (const auto& e : x) {
            if constexpr (std::is_same_v<T, GgufStrings>) {
              put_text(out, e);
            } else {
              put_number(out, v.element, e);
            }
          }
        }
      },
      v.value);
}

uint32_t type_code(const TensorInfo& t) {
  if (t.blocks) return t.blocks->code;
  const BlockType* plain = find_plain_type(t.dtype);
  if (!plain) throw_internal("tensor '{}': a GGUF cannot hold {}", t.name, dtype_name(t.dtype));
  return plain->code;
}

uint64_t padded(uint64_t n) {
  return (n + GgufWriter::kAlignment - 1) / GgufWriter::kAlignment * GgufWriter::kAlignment;
}

}  // namespace

GgufWriter::GgufWriter(const std::filesystem::path& path, std::vector<TensorInfo> tensors,
                       const GgufMetadata& metadata)
    : TensorWriter(std::move(tensors)), file_(path) {
  std::string header = "GGUF";
  put(header, uint32_t(3));
  put(header, uint64_t(this->tensors().size()));
  // Another file's alignment is not this one's.
  constexpr std::string_view kAlignmentKey = "general.alignment";
  put(header, uint64_t(metadata.values().size() - (metadata.has(kAlignmentKey) ? 1 : 0)));
  for (const auto& [key, value] : metadata.values()) {
    if (key == kAlignmentKey) continue;
    put_text(header, key);
    put_value(header, value);
  }
  uint64_t at = 0;
  for (const TensorInfo& t : this->tensors()) {
    put_text(header, t.name);
    put(header, uint32_t(t.shape.size()));
    for (auto d = t.shape.rbegin(); d != t.shape.rend(); ++d) put(header, uint64_t(*d));
    put(header, type_code(t));
    put(header, at);
    at = padded(at + t.stored_bytes());
  }
  file_.write(header);
}

void GgufWriter::pad() {
  const uint64_t at = file_.written();
  file_.write(std::string(size_t(padded(at) - at), '\0'));
}

void GgufWriter::do_begin(const TensorInfo&) { pad(); }
void GgufWriter::do_write(std::span<const std::byte> bytes) { file_.write(bytes); }
void GgufWriter::do_finish() {
  pad();
  file_.commit();
}

}  // namespace nibble
