// SPDX-License-Identifier: MIT
#include "formats/tensor_source.h"

#include <thread>

#include "formats/dat.h"
#include "formats/files.h"
#include "formats/safetensors.h"

namespace nibble {
namespace {

using test::append;
using test::message_of;
using test::tensor;

class Source : public test::ScratchTest {
 protected:
  void write_dat(const std::string& name) {
    DatWriter w(path(name), {tensor("a", DType::u8, {4})});
    append(w, "abcd");
    w.finish();
  }
  void write_safetensors(const std::string& name) {
    SafetensorsWriter w(path(name), {tensor("a", DType::u8, {4})});
    append(w, "abcd");
    w.finish();
  }
};

TEST_F(Source, IsFoundByExtensionOrContent) {
  write_dat("x.dat");
  EXPECT_EQ(open_tensor_source(path("x.dat"))->format(), "dat");
  write_safetensors("model.safetensors");
  EXPECT_EQ(open_tensor_source(path("model.safetensors"))->format(), "safetensors");
  EXPECT_EQ(open_tensor_source(dir_)->format(), "safetensors");
  write_safetensors("weights.bin");
  EXPECT_EQ(open_tensor_source(path("weights.bin"))->format(), "safetensors");
}

TEST_F(Source, SaysWhatWasExpected) {
  const auto error = [&](const std::filesystem::path& p) {
    return message_of<FormatError>([&] { open_tensor_source(p); });
  };
  EXPECT_NE(error(path("absent.dat")).find("no such file"), std::string::npos);
  EXPECT_NE(error(dir_).find("no model.safetensors"), std::string::npos);
  put("x.txt", "hello, this is not a weight file");
  EXPECT_NE(error(path("x.txt")).find("*.safetensors"), std::string::npos);
  put("short", "x");
  EXPECT_NE(error(path("short")).find("not a weight file"), std::string::npos);
}

TEST_F(Source, DescribesItself) {
  write_dat("x.dat");
  const auto source = open_tensor_source(path("x.dat"));
  EXPECT_EQ(source->payload_bytes(), 4u);
  EXPECT_NE(source->describe().find("x.dat: dat, 1 tensors"), std::string::npos)
      << source->describe();
  EXPECT_EQ(source->at("a").describe(), "u8[4]");
}

TEST_F(Source, ReadsAnyRangeFromAnyThread) {
  std::string payload(100000, '\0');
  for (size_t i = 0; i < payload.size(); ++i) payload[i] = char(i * 7 + i / 256);
  DatWriter w(path("x.dat"), {tensor("a", DType::u8, {100000})});
  append(w, payload);
  w.finish();
  const auto source = open_tensor_source(path("x.dat"));
  const TensorInfo& a = source->at("a");
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (size_t at = t; at + 33 < payload.size(); at += 997) {
        std::string piece(33, '\0');
        source->read(a, at, std::as_writable_bytes(std::span(piece)));
        wrong[t] += piece != payload.substr(at, 33);
      }
    });
  }
  for (auto& t : threads) t.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
  std::byte two[2];
  EXPECT_THROW(source->read(a, 99999, two), InternalError);
  EXPECT_THROW(source->read(a, ~uint64_t(0), two), InternalError);
}

TEST_F(Source, RefusesToOverwriteAnInput) {
  write_dat("x.dat");
  write_dat("y.dat");
  std::filesystem::create_symlink(path("x.dat"), path("link.dat"));
  std::filesystem::create_hard_link(path("x.dat"), path("hard.dat"));
  for (const char* same : {"x.dat", "link.dat", "hard.dat", "./x.dat"}) {
    EXPECT_THROW(refuse_overwrite_of_input(path("x.dat"), path(same)), UsageError) << same;
  }
  refuse_overwrite_of_input(path("x.dat"), path("y.dat"));
  refuse_overwrite_of_input(path("x.dat"), path("new.dat"));
  const auto source = open_tensor_source(path("x.dat"));
  EXPECT_THROW(refuse_overwrite_of_input(*source, path("link.dat")), UsageError);
  refuse_overwrite_of_input(*source, path("new.dat"));
}

}  // namespace
}  // namespace nibble
