// SPDX-License-Identifier: MIT
// SHA-256 against the published vectors (FIPS 180-4 examples, NIST CAVP), both ways of computing.
#include "core/sha256.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "core/error.h"
#include "core/file.h"

namespace nibble {
namespace {

std::string hash_of(const std::string& text, Sha256Path path) {
  Sha256 h(path);
  h.update(text);
  return hex_text(h.finish());
}

TEST(Sha256, PublishedVectors) {
  const std::pair<std::string, std::string> vectors[] = {
      {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
      {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
      {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
       "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
      {"abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmn"
       "o"
       "pqrsmnopqrstnopqrstu",
       "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1"},
      {"\xd3", "28969cdfa74a12c82f3bad960b0b000aca2ac329deea5c2328ebc6f2ba9802c1"},
      {std::string(1000000, 'a'),
       "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"},
  };
  for (const auto& [text, hash] : vectors) {
    EXPECT_EQ(hash_of(text, Sha256Path::fastest), hash);
    EXPECT_EQ(hash_of(text, Sha256Path::portable), hash);
    EXPECT_EQ(sha256_hex(text), hash);
  }
}

// Every length around the block and padding borders, in pieces of every size.
TEST(Sha256, PiecesAndBothWaysAgree) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += char(i * 7 + i / 11);
  for (size_t n = 0; n <= text.size(); ++n) {
    const std::string part = text.substr(0, n);
    const std::string whole = hash_of(part, Sha256Path::portable);
    ASSERT_EQ(hash_of(part, Sha256Path::fastest), whole) << n;
    const size_t piece = n % 67 + 1;
    Sha256 h;
    for (size_t at = 0; at < n; at += piece) h.update(std::string_view(part).substr(at, piece));
    ASSERT_EQ(hex_text(h.finish()), whole) << n;
  }
}

TEST(Sha256, Files) {
  const std::filesystem::path file = std::filesystem::path(testing::TempDir()) / "sha256-test";
  replace_file(file, std::string(3'000'000, 'x'));
  EXPECT_EQ(sha256_file(file), sha256_hex(std::string(3'000'000, 'x')));
  std::vector<uint64_t> asked;
  const auto stop = [&](uint64_t done) {
    asked.push_back(done);
    return asked.size() < 2;
  };
  EXPECT_EQ(sha256_file(file, stop), "");
  EXPECT_EQ(asked, (std::vector<uint64_t>{1 << 20, 2 << 20}));
  replace_file(file, "");
  EXPECT_EQ(sha256_file(file), sha256_hex(""));
  std::filesystem::remove(file);
  EXPECT_THROW(sha256_file(file), FormatError);
}

}  // namespace
}  // namespace nibble
