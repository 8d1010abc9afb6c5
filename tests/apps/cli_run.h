// SPDX-License-Identifier: MIT
// The program run inside the test process, and what it wrote.
#pragma once
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "core/file.h"
#include "formats/weights.h"
#include "quant/nvfp4.h"
#include "support/cli.h"
#include "support/golden.h"
#include "support/toy_dir.h"

namespace nibble::test {

// Runs a command that must succeed.
inline std::string cli_ok(const std::vector<std::string>& args, const std::string& input = "") {
  const CliResult r = cli(args, input);
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(r.err, "");
  return r.out;
}

// Runs a command that must fail with `code` and name `part` on standard error.
inline void cli_fails(const std::vector<std::string>& args, int code, const std::string& part) {
  const CliResult r = cli(args);
  EXPECT_EQ(r.code, code) << r.err;
  EXPECT_TRUE(r.err.starts_with("nibble: error: ")) << r.err;
  EXPECT_TRUE(contains(r.err, part)) << r.err;
}

inline std::string golden(const std::string& relative) {
  return (golden_dir() / relative).string();
}

inline std::string file_bytes(const std::filesystem::path& path) { return read_text_file(path); }

// The values of a logical tensor, expanded where it is NVFP4.
inline std::vector<float> values(const WeightIndex& index, const std::string& name) {
  const LogicalTensor& t = index.at(name);
  std::vector<float> x(size_t(t.numel()));
  if (!t.packed()) {
    read_rows_f32(index.source(), t, 0, t.rows, x.data());
    return x;
  }
  std::vector<uint8_t> codes(x.size() / 2), scales(x.size() / 16);
  read_nvfp4_rows(index.source(), t, 0, t.rows, codes.data(), scales.data());
  dequantize_rows(codes.data(), scales.data(), t.rows, t.cols, read_global_scale(index.source(), t),
                  x.data());
  return x;
}

inline std::vector<std::byte> entry_bytes(const TensorSource& source, const std::string& name) {
  const TensorInfo& info = source.at(name);
  std::vector<std::byte> bytes(info.n_bytes);
  source.read(info, 0, bytes);
  return bytes;
}

}  // namespace nibble::test
