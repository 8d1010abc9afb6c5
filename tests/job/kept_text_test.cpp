// SPDX-License-Identifier: MIT
// Text that a model writes itself, to be kept: what a broken model writes is none.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "job/toy_job.h"

namespace nibble::test {
namespace {

namespace fs = std::filesystem;

// A model that counts from whatever it read last: token t is followed by t + 1, the last of a text
// by 0, and 0 by 0, as broken weights do. Hidden states are the embedding, one column a token.
constexpr int64_t kCounted = 10;
void write_broken_model(const fs::path& dir) {
  Config c = toy_chat_config();
  c.tied = false;
  write_toy_directory(dir, c);
  const fs::path file = dir / "model.safetensors";
  std::string bytes = read_text_file(file);
  const auto source = open_tensor_source(file);
  for (const TensorInfo& t : source->tensors()) {
    ASSERT_EQ(t.dtype, DType::f32) << t.name;
    std::vector<float> values(size_t(t.numel()), t.shape.size() == 1 ? 1.0f : 0.0f);  // norms: 1
    const auto set = [&](int64_t row, int64_t column, float value) {
      values[size_t(row * c.C + column)] = value;
    };
    const auto column_of = [](int64_t token) { return std::min(token, kCounted + 1); };
    if (t.name == "model.embed_tokens.weight") {
      for (int64_t token = 0; token < c.V; ++token) set(token, column_of(token), 1);
    } else if (t.name == "lm_head.weight") {
      set(0, 0, 10);
      for (int64_t token = 1; token < kCounted; ++token) set(token + 1, column_of(token), 10);
      set(0, column_of(kCounted), 10);
      set(1, column_of(kCounted + 1), 10);
    }
    bytes.replace(t.file_offset, t.n_bytes, reinterpret_cast<const char*>(values.data()),
                  t.n_bytes);
  }
  replace_file(file, bytes);
}

class KeptText : public ToyJobTest {
 protected:
  TrainJob keeping_job(const std::string& name) const {
    TrainJob j = toy_job(name);
    j.keep.sources = {"self:100"};
    j.batch.seq_len = 200;  // room to collapse behind every opening
    j.steps = 1;
    j.write_output = false;
    return j;
  }
};

TEST_F(KeptText, WhatCollapsedIsNotKept) {
  TrainJob j = keeping_job("broken");
  write_broken_model(dir_.path() / "broken");
  j.model.model = dir_.path() / "broken";
  JobEvents none;
  try {
    run(j, none);
    ADD_FAILURE() << "zeros were kept as text";
  } catch (const UsageError& e) {
    EXPECT_TRUE(contains(e.what(), "--keep self:100: the model writes nothing after")) << e.what();
    EXPECT_TRUE(contains(e.what(), "keep a text file instead")) << e.what();
  }
}

TEST_F(KeptText, OfASoundModelIsKept) {
  JobEvents none;
  EXPECT_TRUE(run(keeping_job("sound"), none).ok());
}

}  // namespace
}  // namespace nibble::test
