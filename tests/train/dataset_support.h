// SPDX-License-Identifier: MIT
// A small tokenizer and shortcuts for the tests of training data.
#pragma once
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/error.h"
#include "tokenizer/mini_tokenizer.h"
#include "train/dataset.h"

namespace nibble::test {

inline const Tokenizer& mini() {
  static const Tokenizer t = Tokenizer::parse(mini_tokenizer_text(), "mini");
  return t;
}

inline Dataset read(const std::string& text, const std::string& name,
                    const DatasetOptions& options = {}) {
  return parse_dataset(text, name, mini(), options);
}
inline Dataset read_tsv(const std::string& text, const DatasetOptions& options = {}) {
  return read(text, "d.tsv", options);
}
inline Dataset read_jsonl(const std::string& text, const DatasetOptions& options = {}) {
  return read(text, "d.jsonl", options);
}
inline Dataset pretrain(const std::string& text, int64_t seq_len, const std::string& name,
                        DatasetOptions options = {}) {
  options.use = DataUse::pretrain;
  options.seq_len = seq_len;
  return read(text, name, options);
}

// The text of every token, and of the scored ones.
inline std::string all_text(const Sample& s) { return mini().decode(s.ids); }
inline std::string scored_text(const Sample& s) {
  std::vector<int32_t> ids;
  for (int64_t r = 0; r < s.rows(); ++r) {
    if (s.row_scored(r)) ids.push_back(s.ids[size_t(r) + 1]);
  }
  return mini().decode(ids);
}

template <class E, class F>
void throws_saying(const F& f, const std::vector<std::string>& says) {
  try {
    f();
    ADD_FAILURE() << "accepted; should have said " << says[0];
  } catch (const E& e) {
    for (const std::string& part : says) {
      EXPECT_NE(std::string(e.what()).find(part), std::string::npos)
          << "'" << part << "' is not in: " << e.what();
    }
  }
}

}  // namespace nibble::test
