// SPDX-License-Identifier: MIT
#include "formats/dat.h"

#include <algorithm>
#include <limits>
#include <string>
#include <unordered_set>
#include <utility>

#include "core/error.h"
#include "formats/checks.h"

namespace nibble {
namespace {

struct CodeRow {
  int code;
  DType dtype;
};
constexpr int kPackedPairs = 100;
constexpr CodeRow kCodes[] = {
    {0, DType::u8},       {1, DType::i8},    {2, DType::i16},           {3, DType::i32},
    {4, DType::i64},      {5, DType::f16},   {6, DType::f32},           {7, DType::f64},
    {11, DType::boolean}, {15, DType::bf16}, {kPackedPairs, DType::u8}, {101, DType::f8_e4m3}};

// Headers are tens of bytes between payloads of megabytes: read a little, skip a lot.
class HeaderReader {
 public:
  explicit HeaderReader(const InputFile& file) : file_(file) {}
  uint64_t offset() const { return offset_; }
  uint64_t left() const { return file_.size() - offset_; }
  void skip(uint64_t n) { offset_ += n; }  // n <= left()

  uint8_t byte(const char* what) {
    if (left() == 0) fail("the file ends inside {}", what);
    if (offset_ < begin_ || offset_ >= begin_ + filled_) fill();
    return uint8_t(buffer_[offset_++ - begin_]);
  }

  uint64_t leb128(const char* what) {
    const uint64_t start = offset_;
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const uint8_t b = byte(what);
      const uint64_t bits = b & 0x7fu;
      if (shift > 63 || (shift == 63 && bits > 1)) {
        fail("{} at offset {} does not fit 64 bits", what, start);
      }
      value |= bits << shift;
      if (b & 0x80) continue;
      // A final zero group is padding no writer makes; accepting it would break byte identity.
      if (b == 0 && shift > 0) fail("{} at offset {} is a padded number", what, start);
      return value;
    }
  }

  std::string text(uint64_t n, const char* what) {  // n is bounded by the caller
    if (n > left()) fail("the file ends inside {}", what);
    std::string s(size_t(n), '\0');
    for (char& c : s) c = char(byte(what));
    return s;
  }

  // What follows "<path>: entry <i> ('<key>'): ".
  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> f, Args&&... args) const {
    const std::string where =
        entry < 0 ? "" : fmt::format("entry {}{}: ", entry, key.empty() ? "" : " ('" + key + "')");
    throw_format("{}: {}{} (offset {} of {})", file_.path().string(), where,
                 fmt::format(f, std::forward<Args>(args)...), offset_, file_.size());
  }

  int64_t entry = -1;  // for messages
  std::string key;

 private:
  void fill() {
    begin_ = offset_;
    filled_ = size_t(std::min<uint64_t>(sizeof(buffer_), left()));
    file_.read(begin_, std::span(buffer_, filled_));
  }
  const InputFile& file_;
  uint64_t offset_ = 0, begin_ = 0;
  size_t filled_ = 0;
  std::byte buffer_[512];
};

TensorInfo scan_entry(HeaderReader& in) {
  TensorInfo t;
  in.key.clear();
  const uint64_t key_bytes = in.leb128("the key length");
  if (key_bytes == 0 || key_bytes > kMaxNameBytes) {
    in.fail("key of {} bytes; 1 to {} are possible (damaged, or not a .dat file?)", key_bytes,
            kMaxNameBytes);
  }
  t.name = in.text(key_bytes, "a key");
  if (!is_utf8(t.name)) in.fail("the key is not UTF-8 (damaged, or not a .dat file?)");
  in.key = t.name;

  const uint64_t code_offset = in.offset();
  const uint64_t code = in.leb128("the element type");
  const auto dtype = dat_code_dtype(code);
  if (!dtype) in.fail("unknown element type code {} at offset {}", code, code_offset);
  t.dat_code = int(code);
  t.dtype = *dtype;

  const uint64_t rank = in.leb128("the rank");
  if (rank > kMaxFileRank) in.fail("rank {}; at most {} is possible", rank, kMaxFileRank);
  for (uint64_t i = 0; i < rank; ++i) {
    const uint64_t d = in.leb128("a dimension");
    if (d > uint64_t(std::numeric_limits<int64_t>::max())) in.fail("dimension {}", d);
    t.shape.push_back(int64_t(d));
  }
  const auto n_bytes = shape_bytes(t.shape, t.dtype);
  if (!n_bytes) in.fail("{} is larger than any file", t.describe());
  if (*n_bytes > in.left()) {
    in.fail("{} needs {} bytes, {} are left (truncated?)", t.describe(), *n_bytes, in.left());
  }
  t.n_bytes = *n_bytes;
  t.file_offset = in.offset();
  in.skip(t.n_bytes);
  return t;
}

void put_leb128(std::string& out, uint64_t value) {
  while (value >= 0x80) {
    out += char(value | 0x80);
    value >>= 7;
  }
  out += char(value);
}

std::vector<TensorInfo> with_codes(std::vector<TensorInfo> tensors) {
  for (TensorInfo& t : tensors) {
    if (t.dat_code < 0) t.dat_code = dat_code_for(t.dtype);
    const auto dtype = dat_code_dtype(uint64_t(t.dat_code));
    if (!dtype) throw_internal("tensor '{}': element type code {}", t.name, t.dat_code);
    t.dtype = *dtype;
  }
  return tensors;
}

}  // namespace

std::optional<DType> dat_code_dtype(uint64_t code) {
  for (const CodeRow& row : kCodes) {
    if (uint64_t(row.code) == code) return row.dtype;
  }
  return std::nullopt;
}

int dat_code_for(DType dtype) {
  for (const CodeRow& row : kCodes) {
    if (row.dtype == dtype) return row.code;  // u8 meets 0 before 100
  }
  throw_internal("a .dat cannot hold {}", dtype_name(dtype));
}

std::vector<TensorInfo> scan_dat(const InputFile& file) {
  HeaderReader in(file);
  const uint64_t count = in.leb128("the entry count");
  if (count > kMaxTensors) in.fail("{} entries (damaged, or not a .dat file?)", count);
  std::vector<TensorInfo> tensors;
  std::unordered_set<std::string> names;
  for (uint64_t i = 0; i < count; ++i) {
    in.entry = int64_t(i);
    tensors.push_back(scan_entry(in));
    if (!names.insert(tensors.back().name).second) in.fail("the key occurs twice");
  }
  in.entry = -1;
  if (in.left() != 0) in.fail("{} bytes follow the last of {} entries", in.left(), count);
  return tensors;
}

std::unique_ptr<TensorSource> open_dat(const std::filesystem::path& path) {
  std::vector<InputFile> files;
  files.emplace_back(path);
  auto tensors = scan_dat(files.front());
  return std::make_unique<TensorSource>("dat", std::move(files), std::move(tensors));
}

DatWriter::DatWriter(const std::filesystem::path& path, std::vector<TensorInfo> tensors)
    : TensorWriter(with_codes(std::move(tensors))), file_(path) {
  std::string count;
  put_leb128(count, this->tensors().size());
  file_.write(count);
}

void DatWriter::do_begin(const TensorInfo& tensor) {
  std::string header;
  put_leb128(header, tensor.name.size());
  header += tensor.name;
  put_leb128(header, uint64_t(tensor.dat_code));
  put_leb128(header, tensor.shape.size());
  for (const int64_t d : tensor.shape) put_leb128(header, uint64_t(d));
  file_.write(header);
}

void DatWriter::do_write(std::span<const std::byte> bytes) { file_.write(bytes); }

void DatWriter::do_finish() { file_.commit(); }

}  // namespace nibble
