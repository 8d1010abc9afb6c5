// SPDX-License-Identifier: MIT
// libFuzzer target: bytes as a training data file. The first two bytes choose options; what is
// accepted must keep the promises of dataset.h and pack into well-formed batches.
#include <cstdlib>

#include "core/error.h"
#include "tokenizer/mini_tokenizer.h"
#include "train/packing.h"

namespace {

using namespace nibble;

void require(bool holds) {
  if (!holds) std::abort();
}

const Tokenizer& tokenizer() {
  static const Tokenizer t = Tokenizer::parse(test::mini_tokenizer_text(), "mini");
  return t;
}

DatasetOptions choose(uint8_t a, uint8_t b) {
  constexpr DataFormat kFormats[] = {DataFormat::tsv, DataFormat::jsonl, DataFormat::text,
                                     DataFormat::json};
  DatasetOptions o;
  o.format = kFormats[a & 3];
  if (o.format == DataFormat::json && (b & 1)) o.format = DataFormat::csv;
  if (b & 2) o.extra = ExtraKeys::refuse;
  const bool pretrain = o.format == DataFormat::text || (a & 4);
  o.use = pretrain ? DataUse::pretrain : DataUse::fine_tune;
  if (a & 8) o.long_response = LongResponse::cut;
  if (a & 16) o.content = ContentTokens::parse;
  if (a & 32) o.end_token = EndToken::leave_out;
  if (a & 64) o.style = TemplateStyle::predecessor;
  if (a & 128) o.documents = Documents::whole_file;
  o.seq_len = 2 + b;
  o.threads = 1;
  return o;
}

void check(const Dataset& d, const DatasetOptions& o) {
  DatasetCounts sum;
  std::vector<Sample> samples;
  for (int64_t i = 0; i < d.size(); ++i) {
    const Sample s = d.sample(i);
    samples.push_back(s);
    require(s.ids.size() == s.flags.size() && s.rows() >= 1 && s.rows() <= o.seq_len);
    for (const int32_t id : s.ids) require(id >= 0 && id < tokenizer().vocab_size());
    int64_t scored = 0;
    for (int64_t r = 0; r < s.rows(); ++r) scored += s.row_scored(r);
    require(scored >= 1 && scored <= d.most_scored());
    sum.tokens += s.rows();
    sum.scored += scored;
  }
  const DatasetCounts& c = d.counts();
  require(c.samples == d.size() && d.size() > 0);
  require(c.tokens == sum.tokens && c.scored == sum.scored);
  require(c.lines >= c.skipped);
  PackedBatch b;
  pack(b, samples);
  require(b.tokens() == c.tokens && b.outputs() == c.scored && b.samples == c.samples);
  int32_t next = 0;
  for (const Sequence& q : b.sequences) {
    require(q.q_begin == next && q.q_len >= 1 && q.kv_begin == next && q.kv_len == q.q_len);
    next += q.q_len;
  }
  require(next == b.tokens());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  DatasetOptions o = choose(data[0], data[1]);
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  try {
    o.bad_lines = BadLines::skip;
    const Dataset some = parse_dataset(text, "fuzz", tokenizer(), o);
    check(some, o);
    o.bad_lines = BadLines::refuse;
    const Dataset all = parse_dataset(text, "fuzz", tokenizer(), o);
    require(some.counts().skipped == 0 && some.content_hash() == all.content_hash());
  } catch (const FormatError&) {
  }
  return 0;
}
