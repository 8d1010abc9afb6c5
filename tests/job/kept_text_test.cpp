// SPDX-License-Identifier: MIT
// Text that a model writes itself, to be kept: what a broken model writes is none.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "job/toy_job.h"

namespace nibble::test {
namespace {

namespace fs = std::filesystem;

// A model that says token 0 whatever it read: all hidden states are one vector, which only the
// head's row 0 looks at.
void write_broken_model(const fs::path& dir) {
  Config c = toy_chat_config();
  c.tied = false;
  write_toy_directory(dir, c);
  const fs::path file = dir / "model.safetensors";
  std::string bytes = read_text_file(file);
  const auto source = open_tensor_source(file);
  const auto fill = [&](const TensorInfo& t, size_t first, size_t count, float value) {
    ASSERT_EQ(t.dtype, DType::f32) << t.name;
    const std::vector<float> values(count, value);
    bytes.replace(t.file_offset + first * sizeof(float), count * sizeof(float),
                  reinterpret_cast<const char*>(values.data()), count * sizeof(float));
  };
  for (const TensorInfo& t : source->tensors()) {
    const size_t n = t.n_bytes / sizeof(float);
    if (t.shape.size() == 1) {
      fill(t, 0, n, 1);  // norms
    } else if (t.name == "model.embed_tokens.weight") {
      fill(t, 0, n, 1);
    } else {
      fill(t, 0, n, 0);
      if (t.name == "lm_head.weight") fill(t, 0, size_t(c.C), 1);
    }
  }
  replace_file(file, bytes);
}

class KeptText : public ToyJobTest {
 protected:
  TrainJob keeping_job(const std::string& name) const {
    TrainJob j = toy_job(name);
    j.keep.sources = {"self:100"};
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
