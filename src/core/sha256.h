// SPDX-License-Identifier: MIT
// SHA-256 (FIPS 180-4): what names a file in the records of runs. Uses the processor's own
// instructions where it has them.
#pragma once
#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace nibble {

class InputFile;

using Sha256Digest = std::array<uint8_t, 32>;

enum class Sha256Path { fastest, portable };  // portable: for tests

class Sha256 {
 public:
  explicit Sha256(Sha256Path path = Sha256Path::fastest);
  void update(std::span<const std::byte> bytes);
  void update(std::string_view text) { update(std::as_bytes(std::span(text))); }
  Sha256Digest finish();  // once, at the end

 private:
  using Compress = void (*)(uint32_t* state, const uint8_t* blocks, size_t count);
  Compress compress_;
  std::array<uint32_t, 8> state_;
  std::array<uint8_t, 64> pending_;
  size_t pending_size_ = 0;
  uint64_t total_ = 0;
};

std::string hex_text(std::span<const uint8_t> bytes);
std::string sha256_hex(std::string_view text);

// Of a whole file, in small pieces. `keep_going` is asked between them with the bytes read so far;
// when it says no, the result is empty. Throws FormatError.
std::string sha256_file(const std::filesystem::path& file,
                        const std::function<bool(uint64_t done)>& keep_going = {});
std::string sha256_file(const InputFile& file,
                        const std::function<bool(uint64_t done)>& keep_going = {});

}  // namespace nibble
