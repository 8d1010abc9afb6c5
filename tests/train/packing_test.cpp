// SPDX-License-Identifier: MIT
// Packed batches: the structure of separate sequences, limits, reuse of memory.
#include "train/packing.h"

#include <algorithm>
#include <numeric>

#include "train/dataset_support.h"

namespace nibble::test {
namespace {

bool same(const Sequence& a, const Sequence& b) {
  return a.q_begin == b.q_begin && a.q_len == b.q_len && a.kv_begin == b.kv_begin &&
         a.kv_len == b.kv_len;
}

struct OneSample {
  std::vector<int32_t> ids;
  std::vector<uint8_t> flags;
  Sample view() const { return {ids, flags}; }
};

TEST(Packing, OneSampleByHand) {
  // Two documents; 9 is the first token of the second.
  const OneSample s{{5, 3, 5, 9, 1, 2}, {0, 0, kScored, kSegmentStart, kScored, kScored}};
  PackedBatch b;
  const Sample view = s.view();
  pack(b, std::span(&view, 1));
  EXPECT_EQ(b.ids, (std::vector<int32_t>{5, 3, 5, 9, 1}));
  EXPECT_EQ(b.positions, (std::vector<int32_t>{0, 1, 2, 0, 1}));
  EXPECT_EQ(b.slots, (std::vector<int32_t>{0, 1, 2, 3, 4}));
  ASSERT_EQ(b.sequences.size(), 2u);
  EXPECT_TRUE(same(b.sequences[0], {0, 3, 0, 3}));
  EXPECT_TRUE(same(b.sequences[1], {3, 2, 3, 2}));
  EXPECT_EQ(b.out_rows, (std::vector<int32_t>{1, 3, 4}));
  EXPECT_EQ(b.targets, (std::vector<int32_t>{5, 1, 2}));
  EXPECT_EQ(b.order, (std::vector<int32_t>{4, 1, 0, 2, 3}));  // ids 1 3 5 5 9
  EXPECT_EQ(b.samples, 1);
  EXPECT_EQ(b.tokens(), 5);
  EXPECT_EQ(b.outputs(), 3);
}

// Kept samples come after the taught ones, and all their rows are outputs without a target.
TEST(Packing, KeptSamplesComeLast) {
  const OneSample taught{{5, 3, 9}, {0, 0, kScored}};
  const OneSample kept{{7, 8, 6, 4}, {0, 0, kSegmentStart, kScored}};
  const Sample t = taught.view(), k = kept.view();
  PackedBatch b;
  pack(b, std::span(&t, 1), std::span(&k, 1));
  EXPECT_EQ(b.ids, (std::vector<int32_t>{5, 3, 7, 8, 6}));
  EXPECT_EQ(b.out_rows, (std::vector<int32_t>{1, 2, 3, 4}));
  EXPECT_EQ(b.targets, (std::vector<int32_t>{9, -1, -1, -1}));
  EXPECT_EQ(b.sequences.size(), 3u);
  EXPECT_EQ(b.kept_tokens, 3);
  EXPECT_EQ(b.kept_sequences, 2);
  EXPECT_EQ(b.taught(), 1);
  EXPECT_EQ(b.samples, 2);
  pack(b, std::span(&t, 1));
  EXPECT_EQ(b.kept_tokens, 0);
  EXPECT_EQ(b.kept_sequences, 0);
}

Dataset some_chats() {
  return read_tsv(
      "hello\tworld\na\tb\nhow are you?\tfine\nx\tyz\nlonger prompt here\tand answer\n");
}

// A batch of several samples is the samples' own batches side by side.
void expect_side_by_side(const Dataset& d) {
  std::vector<Sample> samples;
  for (int64_t i = 0; i < d.size(); ++i) samples.push_back(d.sample(i));
  PackedBatch all, one;
  pack(all, samples);
  size_t row = 0, sequence = 0, out = 0;
  for (const Sample& s : samples) {
    pack(one, std::span(&s, 1));
    const auto base = int32_t(row);
    for (size_t r = 0; r < one.ids.size(); ++r, ++row) {
      ASSERT_EQ(all.ids[row], one.ids[r]);
      ASSERT_EQ(all.positions[row], one.positions[r]);
      ASSERT_EQ(all.slots[row], int32_t(row));
    }
    for (const Sequence& q : one.sequences) {
      ASSERT_TRUE(same(all.sequences[sequence++],
                       {q.q_begin + base, q.q_len, q.kv_begin + base, q.kv_len}));
    }
    for (size_t i = 0; i < one.out_rows.size(); ++i, ++out) {
      ASSERT_EQ(all.out_rows[out], one.out_rows[i] + base);
      ASSERT_EQ(all.targets[out], one.targets[i]);
    }
  }
  EXPECT_EQ(row, all.ids.size());
  EXPECT_EQ(sequence, all.sequences.size());
  EXPECT_EQ(out, all.out_rows.size());
  EXPECT_EQ(all.samples, d.size());
  EXPECT_EQ(all.tokens(), d.counts().tokens);
  EXPECT_EQ(all.outputs(), d.counts().scored);
}

TEST(Packing, SeveralSamplesAreSideBySide) { expect_side_by_side(some_chats()); }
TEST(Packing, DocumentsToo) {
  expect_side_by_side(pretrain("abcdef\n\ngh\n\ni\n\njklmnopq\n\nrst\n", 4, "d.txt"));
}

TEST(Packing, SequencesCoverTheRowsAndScoredRowsStayInside) {
  const Dataset d = pretrain("abcdef\n\ngh\n\ni\n\njklmnopq\n\nrst\n", 5, "d.txt");
  std::vector<Sample> samples;
  for (int64_t i = 0; i < d.size(); ++i) samples.push_back(d.sample(i));
  PackedBatch b;
  pack(b, samples);
  int32_t next = 0;
  for (const Sequence& q : b.sequences) {
    EXPECT_EQ(q.q_begin, next);
    EXPECT_GE(q.q_len, 1);
    EXPECT_EQ(q.kv_begin, q.q_begin);
    EXPECT_EQ(q.kv_len, q.q_len);
    for (int32_t i = 0; i < q.q_len; ++i) EXPECT_EQ(b.positions[size_t(q.q_begin + i)], i);
    // Inside a document a row predicts the next row's token.
    for (size_t i = 0; i < b.out_rows.size(); ++i) {
      const int32_t r = b.out_rows[i];
      if (r >= q.q_begin && r + 1 < q.q_begin + q.q_len) {
        EXPECT_EQ(b.targets[i], b.ids[size_t(r) + 1]);
      }
    }
    next += q.q_len;
  }
  EXPECT_EQ(next, int32_t(b.tokens()));
}

TEST(Packing, ScoredRowsAreTheResponseAndItsEnd) {
  PackedBatch b;
  const Dataset d = some_chats();
  const std::vector<Sample> samples = {d.sample(0), d.sample(3)};
  pack(b, samples);
  EXPECT_EQ(mini().decode(b.targets), "world<|im_end|>yz<|im_end|>");
}

TEST(Packing, OrderIsSortedByIdAndStable) {
  const Dataset d = some_chats();
  std::vector<Sample> samples;
  for (int64_t i = 0; i < d.size(); ++i) samples.push_back(d.sample(i));
  PackedBatch b;
  pack(b, samples);
  std::vector<int32_t> want(b.ids.size());
  std::iota(want.begin(), want.end(), 0);
  std::stable_sort(want.begin(), want.end(),
                   [&](int32_t x, int32_t y) { return b.ids[size_t(x)] < b.ids[size_t(y)]; });
  EXPECT_EQ(b.order, want);
}

TEST(Packing, TakesSamplesUpToTheirNumber) {
  const Dataset d = some_chats();
  SampleOrder order(SampleMode::sequential, d.size(), 0);
  PackedBatch b, want;
  EXPECT_EQ(pack_next(b, d, order, 0, {.samples = 2}), 2u);
  const std::vector<Sample> two = {d.sample(0), d.sample(1)};
  pack(want, two);
  EXPECT_EQ(b.ids, want.ids);
  EXPECT_EQ(pack_next(b, d, order, 4, {.samples = 2}), 6u);  // into the next epoch
  const std::vector<Sample> wrapped = {d.sample(4), d.sample(0)};
  pack(want, wrapped);
  EXPECT_EQ(b.ids, want.ids);
}

TEST(Packing, TakesSamplesUpToTheTokens) {
  const Dataset d = some_chats();
  SampleOrder order(SampleMode::sequential, d.size(), 0);
  const int64_t three = d.sample(0).rows() + d.sample(1).rows() + d.sample(2).rows();
  PackedBatch b;
  EXPECT_EQ(pack_next(b, d, order, 0, {.tokens = three}), 3u);  // exactly full
  EXPECT_EQ(b.tokens(), three);
  EXPECT_EQ(pack_next(b, d, order, 0, {.tokens = three - 1}), 2u);  // one row short
  EXPECT_EQ(pack_next(b, d, order, 0, {.samples = 2, .tokens = three}), 2u);
}

TEST(Packing, ARunSeesEverySampleAndCanStopAnywhere) {
  const Dataset d = some_chats();
  const PackLimits limits{.tokens = 2 * d.most_rows()};
  const PackBounds bounds = pack_bounds(d, limits);
  SampleOrder order(SampleMode::random, d.size(), 11);
  PackedBatch b;
  reserve(b, bounds);
  uint64_t position = 0;
  int64_t tokens = 0;
  while (position < 20 * uint64_t(d.size())) {
    SampleOrder resumed(SampleMode::random, d.size(), 11);
    PackedBatch again;
    const uint64_t next = pack_next(b, d, order, position, limits);
    EXPECT_EQ(pack_next(again, d, resumed, position, limits), next);
    EXPECT_EQ(again.ids, b.ids);
    EXPECT_EQ(int64_t(next - position), b.samples);
    EXPECT_LE(b.tokens(), bounds.tokens);
    EXPECT_LE(b.outputs(), bounds.outputs);
    EXPECT_LE(int64_t(b.sequences.size()), bounds.sequences);
    tokens += b.tokens();
    position = next;
  }
  EXPECT_GE(tokens, 20 * d.counts().tokens);
}

TEST(Packing, BoundsAreReached) {
  const Dataset d = pretrain("abcdefgh\n\nij\n\nk\n\nlmnopqrstuvwxyz\n", 6, "d.txt");
  const PackBounds b = pack_bounds(d, {.samples = 3});
  EXPECT_EQ(b.tokens, 3 * 6);
  EXPECT_EQ(b.outputs, 3 * d.most_scored());
  EXPECT_EQ(b.sequences, 3 * d.most_segments());
  EXPECT_EQ(pack_bounds(d, {.samples = 3, .tokens = 10}).tokens, 10);
  EXPECT_EQ(pack_bounds(d, {.tokens = 10}).outputs, 10);
  EXPECT_EQ(pack_bounds(d, {.samples = INT64_MAX}).tokens, INT32_MAX);
  EXPECT_EQ(pack_bounds(d, {.tokens = INT64_MAX}).tokens, INT32_MAX);
}

TEST(Packing, ReservedMemoryNeverGrows) {
  const Dataset d = some_chats();
  const PackLimits limits{.samples = 3};
  PackedBatch b;
  reserve(b, pack_bounds(d, limits));
  const auto where = [&] {
    return std::vector<const void*>{b.ids.data(),       b.positions.data(), b.slots.data(),
                                    b.sequences.data(), b.out_rows.data(),  b.targets.data(),
                                    b.order.data()};
  };
  const auto before = where();
  SampleOrder order(SampleMode::random, d.size(), 1);
  uint64_t position = 0;
  for (int i = 0; i < 50; ++i) {
    position = pack_next(b, d, order, position, limits);
    ASSERT_EQ(where(), before);
  }
}

TEST(Packing, LimitsThatCannotBe) {
  const Dataset d = some_chats();
  throws_saying<UsageError>([&] { pack_bounds(d, {}); }, {"needs a limit"});
  throws_saying<UsageError>([&] { pack_bounds(d, {.samples = -1, .tokens = 100}); },
                            {"-1 samples"});
  throws_saying<UsageError>([&] { pack_bounds(d, {.tokens = d.most_rows() - 1}); },
                            {"cannot hold the longest sample", std::to_string(d.most_rows())});
  EXPECT_EQ(pack_bounds(d, {.tokens = d.most_rows()}).tokens, d.most_rows());
  SampleOrder order(SampleMode::sequential, d.size(), 0);
  PackedBatch b;
  EXPECT_THROW(pack_next(b, d, order, 0, {}), InternalError);
  EXPECT_THROW(pack_next(b, d, order, 0, {.tokens = 1}), InternalError);
  const OneSample empty{{5}, {0}};
  const Sample view = empty.view();
  EXPECT_THROW(pack(b, std::span(&view, 1)), InternalError);
}

}  // namespace
}  // namespace nibble::test
