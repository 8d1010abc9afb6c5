// SPDX-License-Identifier: MIT
// Which samples a run sees, and when.
#include "job/batch_source.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "train/dataset_support.h"

namespace nibble::test {
namespace {

Dataset rows_named(const std::string& name, int n) {
  std::string text;
  for (int i = 0; i < n; ++i) text += name + std::to_string(i) + "\tis " + name + "\n";
  return read_tsv(text);
}

// The rows of a sample, as they stand in a batch.
std::vector<int32_t> fed(const Sample& s) { return {s.ids.begin(), s.ids.end() - 1}; }

TEST(KeepingBatches, EverySampleComesInTurn) {
  const Dataset taught = rows_named("taught", 5);
  std::vector<Dataset> kept;
  kept.push_back(rows_named("kept", 3));
  kept.push_back(rows_named("other", 2));
  KeepingBatches batches(&taught, kept, KeepShare(0.5), SampleMode::random, 7, 4);
  std::map<std::vector<int32_t>, int> seen;
  PackedBatch b;
  uint64_t position = 0;
  for (uint64_t k = 1; k <= 30; ++k) {
    position = batches.next(b, position);
    ASSERT_EQ(position, 4 * k);
    ASSERT_EQ(b.sequences.size(), 4u);
    EXPECT_EQ(b.kept_sequences, 2);
    for (const Sequence& q : b.sequences) {
      ++seen[{b.ids.begin() + q.q_begin, b.ids.begin() + q.q_begin + q.q_len}];
    }
  }
  // 60 samples of each kind: 12 times 5, and of the kept files, which take turns, 10 times 3 and 15
  // times 2.
  for (int64_t i = 0; i < taught.size(); ++i) EXPECT_EQ(seen[fed(taught.sample(i))], 12) << i;
  for (int64_t i = 0; i < 3; ++i) EXPECT_EQ(seen[fed(kept[0].sample(i))], 10) << i;
  for (int64_t i = 0; i < 2; ++i) EXPECT_EQ(seen[fed(kept[1].sample(i))], 15) << i;
  EXPECT_EQ(seen.size(), 10u);
  // The same position is the same batch.
  PackedBatch again;
  batches.next(again, position - 4);
  EXPECT_EQ(again.ids, b.ids);
}

TEST(RandomBatches, AreWholeDifferentAndRepeatable) {
  RandomBatches batches(/*vocabulary=*/50, /*seq_len=*/16, /*batch_size=*/3, /*seed=*/7);
  PackedBatch first, second, again;
  EXPECT_EQ(batches.next(first, 0), 3u);
  EXPECT_EQ(batches.next(second, 3), 6u);
  batches.next(again, 0);
  EXPECT_EQ(again.ids, first.ids);
  EXPECT_NE(second.ids, first.ids);
  ASSERT_EQ(first.sequences.size(), 3u);
  EXPECT_EQ(first.ids.size(), 48u);  // [3 x 16]: what is fed
  EXPECT_EQ(first.targets.size(), 48u) << "every row is scored";
  std::set<int32_t> drawn(first.ids.begin(), first.ids.end());
  EXPECT_GE(*drawn.begin(), 0);
  EXPECT_LT(*drawn.rbegin(), 50);
  // 48 uniform draws of 50 values: fewer than 15 different ones have a chance below 1e-9.
  EXPECT_GE(drawn.size(), 15u);
  // Sequences of a batch are those that later positions begin with.
  batches.next(again, 1);
  EXPECT_TRUE(std::equal(again.ids.begin(), again.ids.begin() + 32, first.ids.begin() + 16));
}

}  // namespace
}  // namespace nibble::test
