// SPDX-License-Identifier: MIT
// Which files a few names mean.
#include "runtime/model_paths.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "support/toy_dir.h"

namespace nibble::test {
namespace {

class ModelNaming : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(dir_.path() / "m");
    for (const char* f : {"m/a.dat", "m/config.json", "m/tokenizer.json", "other.json"}) {
      replace_file(dir_.path() / f, "x");
    }
  }
  std::filesystem::path at(const char* f) { return dir_.path() / f; }
  static ModelPaths resolve(const ModelOptions& o) {
    return resolve_model(o, TokenizerNeed::required);
  }
  TemporaryDirectory dir_{"naming"};
};

TEST_F(ModelNaming, ABareFileLooksBesideItself) {
  ModelOptions o;
  o.model = at("m/a.dat");
  const ModelPaths p = resolve(o);
  EXPECT_EQ(p.weights, at("m/a.dat"));
  EXPECT_EQ(p.config, at("m/config.json"));
  EXPECT_EQ(p.tokenizer, at("m/tokenizer.json"));
  o.config = at("other.json");
  EXPECT_EQ(resolve(o).config, at("other.json"));
}

TEST_F(ModelNaming, ADirectoryHoldsSafetensorsOrOneDat) {
  ModelOptions o;
  o.model_dir = at("m");
  EXPECT_EQ(resolve(o).weights, at("m/a.dat"));
  replace_file(at("m/b.dat"), "x");
  EXPECT_THROW(resolve(o), UsageError);
  std::filesystem::remove(at("m/b.dat"));
  // Two models in one directory: which one is meant is not guessed.
  for (const char* name : {"m/model.safetensors", "m/model.safetensors.index.json"}) {
    replace_file(at(name), "x");
    EXPECT_THROW(resolve(o), UsageError);
    ModelOptions named;
    named.model = at(name);
    EXPECT_EQ(resolve(named).weights, at(name));
    std::filesystem::remove(at(name));
  }
  replace_file(at("m/model.safetensors"), "x");
  std::filesystem::remove(at("m/a.dat"));
  EXPECT_EQ(resolve(o).weights, at("m"));
}

// Not "no config.json beside it".
TEST_F(ModelNaming, WhatIsNoGgufInsideIsToldSo) {
  for (const char* name : {"m/empty.gguf", "m/text.gguf"}) {
    write_text_file_atomic(at(name), std::string(name) == "m/text.gguf" ? "no weights here" : "");
    ModelOptions o;
    o.model = at(name);
    try {
      resolve(o);
      ADD_FAILURE() << name;
    } catch (const FormatError& e) {
      EXPECT_NE(std::string(e.what()).find("GGUF"), std::string::npos) << e.what();
      EXPECT_NE(std::string(e.what()).find("offset"), std::string::npos) << e.what();
    }
  }
}

TEST_F(ModelNaming, DirectoryAndWeightTogether) {
  ModelOptions o;
  o.model_dir = at("m");
  o.weight = "a.dat";
  EXPECT_EQ(resolve(o).weights, at("m/a.dat"));
  replace_file(at("outside.dat"), "x");
  o.weight = at("outside.dat");
  const ModelPaths p = resolve(o);
  EXPECT_EQ(p.weights, at("outside.dat"));
  EXPECT_EQ(p.config, at("m/config.json"));
  o.weight = "none.dat";
  EXPECT_THROW(resolve(o), FormatError);
  o.model = at("m");
  EXPECT_THROW(resolve(o), UsageError);
}

TEST_F(ModelNaming, MissingPieces) {
  EXPECT_THROW(resolve({}), UsageError);
  ModelOptions o;
  o.model = at("none.dat");
  EXPECT_THROW(resolve(o), FormatError);
  o.model = at("m/a.dat");
  std::filesystem::remove(at("m/tokenizer.json"));
  EXPECT_THROW(resolve(o), FormatError);
  EXPECT_EQ(resolve_model(o, TokenizerNeed::optional).tokenizer, "");
  o.tokenizer = at("none.json");
  EXPECT_THROW(resolve_model(o, TokenizerNeed::optional), FormatError);
  o.tokenizer.clear();
  std::filesystem::remove(at("m/config.json"));
  EXPECT_THROW(resolve_model(o, TokenizerNeed::optional), FormatError);
}

}  // namespace
}  // namespace nibble::test
