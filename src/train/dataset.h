// SPDX-License-Identifier: MIT
// Training data as tokens in host memory: a file of any format, or a folder of files, becomes
// samples that fit the window. The rules for people are in docs/data.md.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/lines.h"
#include "data/read/data_reader.h"
#include "data/read/ignored_keys.h"
#include "tokenizer/chat_template.h"
#include "tokenizer/tokenizer.h"

namespace nibble {

// Flags of one token of a sample.
constexpr uint8_t kScored = 1;        // the model is asked to predict this token
constexpr uint8_t kSegmentStart = 2;  // a document begins here: it attends to nothing before it

// n tokens, of which 0 .. n-2 are the rows that are fed and 1 .. n-1 what they should predict: row
// r is scored when token r + 1 is. A sample may hold several documents (segments).
struct Sample {
  std::span<const int32_t> ids;
  std::span<const uint8_t> flags;
  int64_t rows() const { return int64_t(ids.size()) - 1; }
  bool row_scored(int64_t r) const { return (flags[size_t(r) + 1] & kScored) != 0; }
  bool row_starts(int64_t r) const { return r == 0 || (flags[size_t(r)] & kSegmentStart) != 0; }
};

enum class BadLines { refuse, skip };     // skip: they are counted instead
enum class LongResponse { refuse, cut };  // one that alone does not fit the window
enum class EndToken {
  learn,
  leave_out
};  // whether the template's end token closes what is learned

struct DatasetOptions {
  DataFormat format = DataFormat::automatic;
  DataUse use = DataUse::fine_tune;
  int64_t seq_len = 512;  // rows of the window, at least 2; a sample has one token more
  ChatTemplate style;
  ContentTokens content = ContentTokens::plain;  // text of the data is text, not control tokens
  EndToken end_token = EndToken::learn;
  LongResponse long_response = LongResponse::refuse;
  BadLines bad_lines = BadLines::refuse;
  ExtraKeys extra = ExtraKeys::count;
  Documents documents = Documents::paragraphs;
  std::optional<int32_t> document_end;  // by default the tokenizer's <|endoftext|>
  int threads = 0;                      // 0: as many as there are processors
};

struct DatasetCounts {
  int64_t files = 1;
  int64_t lines = 0;       // of the files, whatever they hold
  int64_t skipped = 0;     // bad lines (text: documents)
  int64_t duplicates = 0;  // samples (pretraining: documents) equal to an earlier one
  int64_t documents = 0;   // pretraining only
  int64_t samples = 0;
  int64_t tokens = 0;                // rows of all samples: what one epoch feeds
  int64_t scored = 0;                // of these, rows that are scored
  int64_t longest = 0;               // tokens of the longest line or document, before the window
  int64_t truncated = 0;             // samples longer than the window
  int64_t lost_tokens = 0;           // what they lost, from their left
  int64_t truncated_responses = 0;   // samples that lost some of what should be learned
  int64_t lost_response_tokens = 0;  // how much of it
  IgnoredKeys ignored;               // what the lines hold beside what is read
};

class Dataset {
 public:
  int64_t size() const { return int64_t(table_.size()); }
  Sample sample(int64_t i) const {
    const Entry& e = table_[size_t(i)];
    return {{ids_.data() + e.begin, e.length}, {flags_.data() + e.begin, e.length}};
  }
  const DatasetCounts& counts() const { return counts_; }
  // Of every sample's tokens and flags in order: equal data, template and window give an equal
  // hash, whatever the file looks like.
  uint64_t content_hash() const { return hash_; }
  // SHA-256 of the bytes on disk, hexadecimal; of a folder that of its list of hashes and names, as
  // sha256sum prints it.
  const std::string& file_sha256() const { return file_sha256_; }
  // The most of each that any one sample has.
  int64_t most_rows() const { return most_rows_; }
  int64_t most_scored() const { return most_scored_; }
  int64_t most_segments() const { return most_segments_; }
  // A few lines for people: what was read, and what was left out or cut.
  std::string summary() const;

 private:
  friend class DatasetBuilder;
  friend Dataset load_dataset(const std::filesystem::path& path, const Tokenizer& tokenizer,
                              const DatasetOptions& options);
  struct Entry {
    uint64_t begin, length;  // windows of pretraining overlap by one token
  };
  std::vector<int32_t> ids_;
  std::vector<uint8_t> flags_;
  std::vector<Entry> table_;
  DatasetCounts counts_;
  uint64_t hash_ = 0;
  std::string file_sha256_;
  int64_t most_rows_ = 0, most_scored_ = 0, most_segments_ = 0;
};

// Throws FormatError "file:line: ..." for bad data, also when there is no sample at all; UsageError
// for options that cannot be.
Dataset load_dataset(const std::filesystem::path& path, const Tokenizer& tokenizer,
                     const DatasetOptions& options);
// The same from memory; `name` stands for the file in messages and has its extension.
Dataset parse_dataset(std::string_view text, const std::string& name, const Tokenizer& tokenizer,
                      const DatasetOptions& options);

}  // namespace nibble
