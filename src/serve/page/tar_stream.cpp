// SPDX-License-Identifier: MIT
#include "serve/page/tar_stream.h"

#include <algorithm>
#include <cstring>

#include "core/error.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;

constexpr size_t kBlock = 512, kPiece = 1 << 20;

// Octal digits, or, beyond what eleven of them hold, a number of bytes (as GNU and BSD read it).
void put_size(std::string& header, uint64_t size) {
  constexpr size_t kAt = 124, kDigits = 11;
  if (size < (uint64_t(1) << (3 * kDigits))) {
    header.replace(kAt, kDigits, fmt::format("{:011o}", size));
    return;
  }
  header[kAt] = char(0x80);
  for (size_t i = 0; i < 8; ++i) header[kAt + 11 - i] = char(size >> (8 * i) & 0xff);
}

}  // namespace

std::string tar_header(const std::string& name, uint64_t size) {
  if (name.size() > 100) throw_format("'{}' is too long a name for an archive", name);
  std::string h(kBlock, '\0');
  h.replace(0, name.size(), name);
  h.replace(100, 7, "0000644");
  h.replace(108, 7, "0000000");
  h.replace(116, 7, "0000000");
  put_size(h, size);
  h.replace(136, 11, "00000000000");  // 1970: the same model makes the same archive
  h.replace(148, 8, "        ");
  h[156] = '0';
  h.replace(257, 8, std::string("ustar\00000", 8));
  uint64_t sum = 0;
  for (const char c : h) sum += static_cast<unsigned char>(c);
  h.replace(148, 7, fmt::format("{:06o}", sum) + '\0');
  return h;
}

TarStream::TarStream(const fs::path& folder, const std::string& root) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.symlink_status().type() == fs::file_type::regular) files.push_back(entry.path());
  }
  std::ranges::sort(files);
  for (const fs::path& f : files) {
    entries_.push_back({root + "/" + f.filename().string(), InputFile(f)});
    tar_header(entries_.back().name, entries_.back().file.size());
  }
}

bool TarStream::next(std::string& out) {
  if (at_ == entries_.size()) {
    out.append(2 * kBlock, '\0');
    return false;
  }
  const Entry& e = entries_[at_];
  if (!begun_) {
    out += tar_header(e.name, e.file.size());
    begun_ = true;
  }
  const size_t n = size_t(std::min<uint64_t>(kPiece, e.file.size() - offset_));
  const size_t had = out.size();
  out.resize(had + n);
  if (n > 0) e.file.read(offset_, std::as_writable_bytes(std::span(out).subspan(had)));
  offset_ += n;
  if (offset_ == e.file.size()) {
    out.append((kBlock - offset_ % kBlock) % kBlock, '\0');
    ++at_;
    offset_ = 0;
    begun_ = false;
  }
  return true;
}

}  // namespace nibble
