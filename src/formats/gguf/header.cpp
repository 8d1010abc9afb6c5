// SPDX-License-Identifier: MIT
#include "formats/gguf/header.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <unordered_set>
#include <utility>

#include "core/checked.h"
#include "core/error.h"
#include "formats/checks.h"
#include "formats/gguf/block_types.h"

static_assert(std::endian::native == std::endian::little, "files are little-endian");

namespace nibble {
namespace {

// Limits of a bad file's cost, far above real ones: a vocabulary of 256 Ki tokens makes a header of
// 20 MB, a model has a hundred keys, the longest strings are chat templates.
constexpr uint64_t kMostHeaderBytes = 1ull << 30, kMostStringBytes = 64ull << 20;
constexpr uint64_t kMostKeys = 1u << 16;

// Reads the header front to back through a buffer.
class Cursor {
 public:
  explicit Cursor(const InputFile& file) : file_(file) {}
  uint64_t offset() const { return offset_; }
  uint64_t left() const { return file_.size() - offset_; }

  void bytes(void* out, uint64_t n, std::string_view what) {
    if (n > left()) fail("the file ends inside {} (cut?)", what);
    if (offset_ + n > kMostHeaderBytes) {
      fail("{} passes the limit of {} bytes for a header", what, kMostHeaderBytes);
    }
    auto* to = static_cast<std::byte*>(out);
    while (n > 0) {
      if (offset_ < begin_ || offset_ >= begin_ + buffer_.size()) fill();
      const uint64_t count = std::min(n, begin_ + buffer_.size() - offset_);
      std::memcpy(to, buffer_.data() + (offset_ - begin_), size_t(count));
      to += count;
      offset_ += count;
      n -= count;
    }
  }
  template <class T>
  T number(std::string_view what) {
    T value{};
    bytes(&value, sizeof value, what);
    return value;
  }
  std::string text(uint64_t most, std::string_view what) {
    const uint64_t at = offset_;
    const auto n = number<uint64_t>(what);
    if (n > most) {
      offset_ = at;
      fail("{} of {} bytes; at most {} are possible", what, n, most);
    }
    if (n > left()) fail("{} of {} bytes, {} are left (cut?)", what, n, left());
    std::string s(size_t(n), '\0');
    bytes(s.data(), n, what);
    return s;
  }

  // What follows "<path>: <subject>: ".
  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> f, Args&&... args) const {
    throw_format("{}: {}{}{} (offset {} of {})", file_.path().string(), subject,
                 subject.empty() ? "" : ": ", fmt::format(f, std::forward<Args>(args)...), offset_,
                 file_.size());
  }
  std::string subject;  // for messages

 private:
  void fill() {
    begin_ = offset_;
    buffer_.resize(size_t(std::min<uint64_t>(1 << 18, left())));
    file_.read(begin_, buffer_);
  }
  const InputFile& file_;
  uint64_t offset_ = 0, begin_ = 0;
  std::vector<std::byte> buffer_;
};

GgufType read_type(Cursor& in, std::string_view what) {
  const auto type = in.number<uint32_t>(what);
  if (type > uint32_t(GgufType::f64)) in.fail("{} {} is none of the format's 13", what, type);
  return GgufType(type);
}

uint64_t least_bytes(GgufType type) {
  switch (type) {
    case GgufType::u8:
    case GgufType::i8:
    case GgufType::boolean: return 1;
    case GgufType::u16:
    case GgufType::i16: return 2;
    case GgufType::u32:
    case GgufType::i32:
    case GgufType::f32: return 4;
    case GgufType::u64:
    case GgufType::i64:
    case GgufType::f64:
    case GgufType::string: return 8;  // a string: its length
    case GgufType::array: return 12;
  }
  return 1;
}

bool read_boolean(Cursor& in) {
  const auto b = in.number<uint8_t>("a boolean");
  if (b > 1) in.fail("a boolean is {}", b);
  return b == 1;
}

std::string read_text(Cursor& in) {
  std::string s = in.text(kMostStringBytes, "a string");
  if (!is_utf8(s)) in.fail("a string is not UTF-8");
  return s;
}

// Calls `use` with the value: int64_t, uint64_t or double.
template <class Use>
void read_number(Cursor& in, GgufType type, Use&& use) {
  switch (type) {
    case GgufType::u8: return use(uint64_t(in.number<uint8_t>("a number")));
    case GgufType::i8: return use(int64_t(in.number<int8_t>("a number")));
    case GgufType::u16: return use(uint64_t(in.number<uint16_t>("a number")));
    case GgufType::i16: return use(int64_t(in.number<int16_t>("a number")));
    case GgufType::u32: return use(uint64_t(in.number<uint32_t>("a number")));
    case GgufType::i32: return use(int64_t(in.number<int32_t>("a number")));
    case GgufType::u64: return use(in.number<uint64_t>("a number"));
    case GgufType::i64: return use(in.number<int64_t>("a number"));
    case GgufType::f32: return use(double(in.number<float>("a number")));
    case GgufType::f64: return use(in.number<double>("a number"));
    default: throw_internal("{} is read as a number", gguf_type_name(type));
  }
}

void read_array(Cursor& in, GgufValue& v) {
  v.element = read_type(in, "the element type");
  if (v.element == GgufType::array) in.fail("an array of arrays is not supported");
  const auto n = in.number<uint64_t>("the length of an array");
  const uint64_t each = least_bytes(v.element);
  if (n > in.left() / each) {
    in.fail("an array of {} {} needs more than the {} bytes that are left", n,
            gguf_type_name(v.element), in.left());
  }
  // Grown as elements come: a header ends before most lengths a bad file can claim.
  if (v.element == GgufType::string) {
    GgufStrings& all = v.value.emplace<GgufStrings>();
    for (uint64_t i = 0; i < n; ++i) all.push_back(read_text(in));
    return;
  }
  if (v.element == GgufType::f32 || v.element == GgufType::f64) {
    GgufNumbers& all = v.value.emplace<GgufNumbers>();
    for (uint64_t i = 0; i < n; ++i) {
      read_number(in, v.element, [&](auto x) { all.push_back(double(x)); });
    }
    return;
  }
  GgufIntegers& all = v.value.emplace<GgufIntegers>();
  for (uint64_t i = 0; i < n; ++i) {
    if (v.element == GgufType::boolean) {
      all.push_back(read_boolean(in));
      continue;
    }
    read_number(in, v.element, [&](auto x) {
      if (std::cmp_greater(uint64_t(x), std::numeric_limits<int64_t>::max()) && x > 0) {
        in.fail("element {} is {}, over 63 bits", i, x);
      }
      all.push_back(int64_t(x));
    });
  }
}

GgufMetadata read_metadata(Cursor& in, uint64_t count, const std::string& path) {
  GgufMetadata metadata(path);
  for (uint64_t i = 0; i < count; ++i) {
    in.subject = fmt::format("key {} of {}", i, count);
    std::string key = in.text(kMaxNameBytes, "a key");
    if (key.empty()) in.fail("the key is empty");
    if (!is_utf8(key)) in.fail("the key is not UTF-8");
    in.subject = fmt::format("key '{}'", key);
    GgufValue v;
    v.type = read_type(in, "the type");
    v.offset = in.offset();
    switch (v.type) {
      case GgufType::string: v.value = read_text(in); break;
      case GgufType::boolean: v.value = read_boolean(in); break;
      case GgufType::array: read_array(in, v); break;
      default: read_number(in, v.type, [&](auto x) { v.value = x; });
    }
    if (!metadata.add(std::move(key), std::move(v))) in.fail("the key occurs twice");
  }
  in.subject.clear();
  return metadata;
}

// Sets name, type, shape and sizes; the offset is relative to the payload as yet.
TensorInfo read_tensor(Cursor& in) {
  TensorInfo t;
  t.name = in.text(kMaxNameBytes, "a name");
  if (t.name.empty()) in.fail("the name is empty");
  if (!is_utf8(t.name)) in.fail("the name is not UTF-8");
  in.subject = fmt::format("tensor '{}'", t.name);
  const auto rank = in.number<uint32_t>("the number of dimensions");
  if (rank > kMaxFileRank) in.fail("{} dimensions; at most {} are possible", rank, kMaxFileRank);
  for (uint32_t i = 0; i < rank; ++i) {
    const auto d = in.number<uint64_t>("a dimension");
    if (d == 0 || d > uint64_t(std::numeric_limits<int64_t>::max())) {
      in.fail("dimension {} is {}; expected a positive number", i, int64_t(d));
    }
    t.shape.push_back(int64_t(d));
  }
  const auto code = in.number<uint32_t>("the type");
  const BlockType* type = find_block_type(code);
  if (!type) {
    const std::string_view name = unread_block_type(code);
    in.fail("elements of type {}{} are not supported", code,
            name.empty() ? "" : fmt::format(" ({})", name));
  }
  const int64_t row = t.shape.empty() ? 1 : t.shape.front();  // the innermost stands first
  if (row % type->elements != 0) {
    in.fail("rows of {} elements are not whole blocks of {} ({})", row, type->elements, type->name);
  }
  std::ranges::reverse(t.shape);
  t.dtype = type->dtype;
  if (type->expand) t.blocks = type;
  const auto n_bytes = shape_bytes(t.shape, t.dtype);
  if (!n_bytes) in.fail("{} is larger than any file", t.describe());
  t.n_bytes = *n_bytes;
  t.file_offset = in.number<uint64_t>("the offset");
  return t;
}

uint64_t alignment_of(const GgufMetadata& metadata) {
  constexpr int64_t kDefault = 32, kMost = 1 << 20;
  constexpr std::string_view kKey = "general.alignment";
  const int64_t a = metadata.find_integer(kKey).value_or(kDefault);
  if (a < 1 || a > kMost || !std::has_single_bit(uint64_t(a))) {
    metadata.refuse(kKey, fmt::format("a power of two up to {}", kMost));
  }
  return uint64_t(a);
}

uint64_t round_up(uint64_t n, uint64_t alignment) {
  return (n + alignment - 1) / alignment * alignment;
}

// Payloads lie end to end, padded to the alignment, and fill the file: anything else is damage.
void check_payload(const InputFile& file, uint64_t begin, uint64_t alignment,
                   std::vector<TensorInfo>& tensors) {
  const std::string path = file.path().string();
  std::vector<TensorInfo*> sorted;
  for (TensorInfo& t : tensors) sorted.push_back(&t);
  std::ranges::stable_sort(sorted, {}, [](const TensorInfo* t) { return t->file_offset; });
  if (begin > file.size() && !tensors.empty()) {
    throw_format("{}: the payload begins at byte {}, the file has {} (cut?)", path, begin,
                 file.size());
  }
  const uint64_t available = file.size() - std::min(begin, file.size());
  uint64_t end = 0;
  for (TensorInfo* t : sorted) {
    const uint64_t at = t->file_offset, n = t->stored_bytes();
    if (at % alignment != 0) {
      throw_format(
          "{}: tensor '{}' begins at byte {} of the payload, no multiple of {} (offset {})", path,
          t->name, at, alignment, begin);
    }
    if (at < end) {
      throw_format(
          "{}: tensor '{}' begins at byte {} of the payload, where another lies up to {} "
          "(overlap; offset {})",
          path, t->name, at, end, begin + at);
    }
    if (at > round_up(end, alignment)) {
      throw_format(
          "{}: tensor '{}' begins at byte {} of the payload, {} bytes after the one before "
          "(a hole: tensors are missing; offset {})",
          path, t->name, at, at - end, begin + end);
    }
    if (n > available || at > available - n) {
      throw_format("{}: tensor '{}' needs bytes {} to {} of the file, which has {} (cut?)", path,
                   t->name, begin + at, begin + at + n, file.size());
    }
    end = at + n;
    t->file_offset = begin + at;
  }
  if (available > round_up(end, alignment)) {
    throw_format("{}: {} bytes follow the last of {} tensors (offset {})", path, available - end,
                 tensors.size(), begin + end);
  }
}

}  // namespace

GgufHeader read_gguf_header(const InputFile& file) {
  Cursor in(file);
  char magic[4] = {};
  if (file.size() < sizeof magic) in.fail("too short for a GGUF");
  in.bytes(magic, sizeof magic, "the magic number");
  if (std::string_view(magic, 4) != "GGUF") in.fail("does not begin with 'GGUF'");
  GgufHeader header;
  header.version = in.number<uint32_t>("the version");
  if (header.version != 2 && header.version != 3) {
    const bool swapped = header.version >= 1u << 24;
    in.fail("version {} of the format is not supported, only 2 and 3{}", header.version,
            swapped ? " (a big-endian file?)" : "");
  }
  const auto n_tensors = in.number<uint64_t>("the number of tensors");
  const auto n_keys = in.number<uint64_t>("the number of keys");
  // The least that a tensor and a key take.
  if (n_tensors > kMaxTensors || n_tensors > in.left() / 24) {
    in.fail("{} tensors in a file of {} bytes", n_tensors, file.size());
  }
  if (n_keys > kMostKeys || n_keys > in.left() / 13) {
    in.fail("{} keys in a file of {} bytes", n_keys, file.size());
  }
  header.metadata = read_metadata(in, n_keys, file.path().string());
  std::unordered_set<std::string> names;
  for (uint64_t i = 0; i < n_tensors; ++i) {
    in.subject = fmt::format("tensor {} of {}", i, n_tensors);
    header.tensors.push_back(read_tensor(in));
    if (!names.insert(header.tensors.back().name).second) in.fail("the name occurs twice");
  }
  const uint64_t alignment = alignment_of(header.metadata);
  check_payload(file, round_up(in.offset(), alignment), alignment, header.tensors);
  return header;
}

}  // namespace nibble
