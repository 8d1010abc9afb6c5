// SPDX-License-Identifier: MIT
// nibble train under mpirun: processes that train one model together, against one process.
#pragma once
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "support/mpi_run.h"
#include "support/paths.h"
#include "support/text.h"
#include "support/toy_dir.h"

namespace nibble::test {

namespace fs = std::filesystem;

// With parameters of several chunks, whose rows do not end where chunks do.
inline Config toy_of_chunks() {
  Config c = toy_chat_config();
  c.C = 224, c.D = 32, c.Hq = 7, c.Hkv = 1, c.F = 320, c.L = 3;
  return c;
}

class RanksTrain : public testing::Test {
 protected:
  void SetUp() override {
    write_toy_directory(dir_.path() / "m", toy_of_chunks());
    std::string pairs;
    for (int i = 0; i < 7; ++i) {
      pairs += "question " + std::to_string(i) + "\tanswer " + std::to_string(i * i) + "\n";
    }
    replace_file(dir_.path() / "pairs.tsv", pairs);
  }

  // Arguments of a training; `name` is that of its folder, which has its checkpoints and its model.
  std::string train(const std::string& name, const std::string& more) const {
    const fs::path folder = dir_.path() / name;
    return std::string(kNibblePath) + " train --model " + (dir_.path() / "m").string() +
           " --train-data " + (dir_.path() / "pairs.tsv").string() +
           " --device cpu --threads 1 --seq-len 48 --grad-dtype fp32 --self-test false"
           " --checkpoint-dir " +
           (folder / "saved").string() + " --save-every-steps 1" +
           " --keep-checkpoints 0 --runs-dir " + (dir_.path() / "runs").string() + " --output " +
           (folder / "model").string() + (contains(more, "--lr ") ? " " : " --lr 1e-3 ") + more;
  }
  // By so many ranks; 0: without mpirun.
  MpiRun run(int ranks, const std::string& name, const std::string& more) const {
    fs::create_directories(dir_.path() / name);
    if (ranks > 0) return mpi_run(ranks, train(name, more), "NIBBLE_RANK_LIMIT=60");
    return shell_run(train(name, more) + " 2>&1 </dev/null");
  }
  std::string model_of(const std::string& name) const {
    return read_text_file(dir_.path() / name / "model" / "model.safetensors");
  }
  std::string checkpoint_of(const std::string& name, int step) const {
    return read_text_file(dir_.path() / name / "saved" /
                          ("checkpoint-0000000" + std::to_string(step) + ".safetensors"));
  }
  void expect_equal(const std::string& a, const std::string& b, int steps) const {
    EXPECT_TRUE(model_of(a) == model_of(b)) << a << " and " << b << " exported other bytes";
    for (int s = 1; s <= steps; ++s) {
      EXPECT_TRUE(checkpoint_of(a, s) == checkpoint_of(b, s))
          << a << " and " << b << ", step " << s;
    }
  }

  TemporaryDirectory dir_{"ranks-train"};
};

}  // namespace nibble::test
