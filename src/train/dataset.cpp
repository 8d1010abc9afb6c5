// SPDX-License-Identifier: MIT
#include "train/dataset.h"

#include <algorithm>
#include <limits>
#include <unordered_set>

#include "core/error.h"
#include "core/hash.h"
#include "core/log.h"
#include "core/progress.h"
#include "core/sha256.h"
#include "core/thread_pool.h"
#include "data/read/data_files.h"
#include "train/dataset_parts.h"

namespace nibble {
namespace {

template <class T>
uint64_t hash_values(const std::vector<T>& values, uint64_t h) {
  return hash_bytes({reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)}, h);
}

// One unit, worked on by any thread; the results are used in the order of the file.
struct Outcome {
  DataTokens tokens;
  std::string error;  // what is wrong with the unit; empty: nothing
  int64_t line = 0;   // and where
  DataRecord record = {};
};

Outcome process(const DataReader& reader, size_t unit, const Tokenizer& tokenizer,
                const DatasetOptions& options) {
  DataReader::Result read = reader.read(unit);
  Outcome out{{}, std::move(read.error), read.line, std::move(read.record)};
  if (!out.error.empty()) return out;
  try {
    out.tokens = encode_record(out.record, tokenizer, options);
  } catch (const FormatError& e) {
    out.error = e.what();
  } catch (const UsageError& e) {
    out.error = e.what();
  }
  return out;
}

// Everything that can be wrong before a line has been read; fills in what was left to be chosen.
DatasetOptions settle(DatasetOptions o, const std::string& name, const Tokenizer& tokenizer) {
  if (o.seq_len < 2 || o.seq_len >= std::numeric_limits<int32_t>::max()) {
    throw_usage("a window of {} tokens: it must be at least 2 and below 2^31", o.seq_len);
  }
  if (o.use == DataUse::fine_tune) {
    if (o.format == DataFormat::text) {
      throw_usage("{}: plain text has no prompts and responses; it is for pretraining", name);
    }
    require_chat_tokens(tokenizer);
    return o;
  }
  if (o.format == DataFormat::tsv) require_chat_tokens(tokenizer);
  if (!o.document_end) o.document_end = tokenizer.endoftext();
  if (!o.document_end) {
    throw_usage("the tokenizer has no <|endoftext|> to end documents with; name another token");
  }
  if (*o.document_end < 0) throw_usage("documents cannot end with token {}", *o.document_end);
  return o;
}

}  // namespace

// Puts samples together in the order of the file.
class DatasetBuilder {
 public:
  DatasetBuilder(const std::string& name, const DatasetOptions& options)
      : all_(name), name_(name), options_(options) {}

  void begin_file(const std::string& name) { name_ = name; }

  void add(const Outcome& outcome) {
    if (!outcome.error.empty()) return bad(outcome.line, outcome.error);
    counts().ignored.add(outcome.record);
    const DataTokens& t = outcome.tokens;
    if (options_.use == DataUse::pretrain) {
      append(t, 0);
      ++counts().documents;
    } else if (!add_sample(outcome.line, t)) {
      return;
    }
    counts().longest = std::max(counts().longest, int64_t(t.ids.size()));
    if (!seen_.insert(hash_values(t.ids, 0)).second) ++counts().duplicates;
  }

  void add_lines(int64_t lines) { counts().lines += lines; }

  Dataset finish(int64_t files) {
    counts().files = files;
    const int64_t lines = counts().lines;
    if (options_.use == DataUse::pretrain) cut_windows();
    if (data_.table_.empty()) {
      throw_format("{}: nothing to learn from: {} lines, none of them usable{}", all_, lines,
                   counts().skipped > 0 ? fmt::format(" ({} were bad)", counts().skipped) : "");
    }
    for (int64_t i = 0; i < data_.size(); ++i) measure(data_.sample(i));
    counts().samples = data_.size();
    data_.hash_ = hash_values(data_.table_, hash_bytes("nibble dataset 1", 0));
    data_.hash_ = hash_values(data_.flags_, hash_values(data_.ids_, data_.hash_));
    return std::move(data_);
  }

 private:
  DatasetCounts& counts() { return data_.counts_; }

  void bad(int64_t line, const std::string& what) {
    const std::string message = fmt::format("{}:{}: {}", name_, line, what);
    if (options_.bad_lines == BadLines::refuse) throw FormatError(message);
    constexpr int64_t kShown = 3;
    if (++counts().skipped <= kShown) log_warning("skipped: {}", message);
    if (counts().skipped == kShown + 1) log_warning("further bad lines are only counted");
  }

  void append(const DataTokens& t, size_t from) {
    data_.ids_.insert(data_.ids_.end(), t.ids.begin() + std::ptrdiff_t(from), t.ids.end());
    data_.flags_.insert(data_.flags_.end(), t.flags.begin() + std::ptrdiff_t(from), t.flags.end());
  }

  bool add_sample(int64_t line, const DataTokens& t) {
    const size_t window = size_t(options_.seq_len) + 1;
    const size_t lost = t.ids.size() > window ? t.ids.size() - window : 0;
    if (t.last_response > options_.seq_len && options_.long_response == LongResponse::refuse) {
      bad(line, fmt::format("the response has {} tokens and does not fit the window of {}: "
                            "--seq-len {} holds the whole sample, --truncate lets the response "
                            "lose its beginning",
                            t.last_response, options_.seq_len, t.ids.size() - 1));
      return false;
    }
    if (lost > 0) {
      // The first token that is left is only fed: nothing stands before it to predict it from.
      const auto out = t.flags.begin() + std::ptrdiff_t(lost) + 1;
      const int64_t unlearned = std::count(t.flags.begin(), out, kScored);
      ++counts().truncated;
      counts().lost_tokens += int64_t(lost);
      counts().truncated_responses += unlearned > 0;
      counts().lost_response_tokens += unlearned;
    }
    data_.table_.push_back({data_.ids_.size(), t.ids.size() - lost});
    append(t, lost);
    return true;
  }

  // Windows share one token: the last target of one is the first input of the next. The last
  // window is as long as what is left.
  void cut_windows() {
    const uint64_t n = data_.ids_.size(), rows = uint64_t(options_.seq_len);
    for (uint64_t at = 0; at + 1 < n; at += rows) {
      data_.table_.push_back({at, std::min(rows + 1, n - at)});
    }
  }

  void measure(const Sample& s) {
    int64_t scored = 0, segments = 0;
    for (int64_t r = 0; r < s.rows(); ++r) {
      scored += s.row_scored(r);
      segments += s.row_starts(r);
    }
    counts().tokens += s.rows();
    counts().scored += scored;
    data_.most_rows_ = std::max(data_.most_rows_, s.rows());
    data_.most_scored_ = std::max(data_.most_scored_, scored);
    data_.most_segments_ = std::max(data_.most_segments_, segments);
  }

  std::string all_, name_;  // as it was given, and the file that is read
  DatasetOptions options_;
  Dataset data_;
  std::unordered_set<uint64_t> seen_;
};

std::string Dataset::summary() const {
  const DatasetCounts& c = counts_;
  std::string s =
      fmt::format("{} samples from {} lines{}: {} tokens, {} of them scored", c.samples, c.lines,
                  c.files > 1 ? fmt::format(" of {} files", c.files) : "", c.tokens, c.scored);
  if (c.documents > 0) s += fmt::format("; {} documents", c.documents);
  s += fmt::format("; the longest has {} tokens", c.longest);
  if (c.duplicates > 0) s += fmt::format("\n{} are repeated", c.duplicates);
  if (c.skipped > 0) s += fmt::format("\n{} bad lines were skipped", c.skipped);
  if (!c.ignored.empty()) s += "\n" + c.ignored.text();
  if (c.truncated > 0) {
    s += fmt::format("\n{} samples are longer than the window and lose {} tokens from their left",
                     c.truncated, c.lost_tokens);
  }
  if (c.truncated_responses > 0) {
    s += fmt::format("\n{} of them lose {} tokens of what should be learned", c.truncated_responses,
                     c.lost_response_tokens);
  }
  return s;
}

namespace {

void add_text(DatasetBuilder& builder, std::string_view text, const std::string& name,
              const Tokenizer& tokenizer, const DatasetOptions& options) {
  const DataReader reader(text, name,
                          {options.format, options.use, options.documents, options.extra});
  const std::vector<DataUnit>& units = reader.units();
  builder.begin_file(name);
  constexpr size_t kMostUnits = 4096, kMostBytes = 4 << 20, kGrain = 16;
  const int threads = options.threads > 0 ? options.threads : default_thread_count();
  ThreadPool pool(int(std::min<size_t>(size_t(threads), units.size() / kGrain + 1)));
  Progress progress(fmt::format("tokenising {}", name), text.size());
  std::vector<Outcome> outcomes;
  for (size_t begin = 0, end = 0; begin < units.size(); begin = end) {
    size_t bytes = 0;
    while (end < units.size() && end - begin < kMostUnits && bytes < kMostBytes) {
      bytes += units[end++].text.size();
    }
    outcomes.resize(end - begin);
    pool.parallel_for(int64_t(end - begin), kGrain, [&](int64_t from, int64_t to, int) {
      for (size_t i = size_t(from); i < size_t(to); ++i) {
        outcomes[i] = process(reader, begin + i, tokenizer, options);
      }
    });
    for (const Outcome& outcome : outcomes) builder.add(outcome);
    progress.advance(bytes);
  }
  builder.add_lines(reader.lines());
}

}  // namespace

Dataset parse_dataset(std::string_view text, const std::string& name, const Tokenizer& tokenizer,
                      const DatasetOptions& given) {
  DatasetOptions options = given;
  if (options.format == DataFormat::automatic) options.format = format_of(name, options.use);
  options = settle(options, name, tokenizer);
  DatasetBuilder builder(name, options);
  add_text(builder, text, name, tokenizer, options);
  return builder.finish(1);
}

Dataset load_dataset(const std::filesystem::path& path, const Tokenizer& tokenizer,
                     const DatasetOptions& given) {
  const DataFileList list = data_files(path, given.format, given.use, given.extra);
  const auto settled = [&](const DataFile& file) {  // wrong options, before a large file is read
    DatasetOptions options = given;
    options.format = file.format;
    return settle(options, file.path.string(), tokenizer);
  };
  for (const DataFile& file : list.files) settled(file);
  DatasetBuilder builder(path.string(), settled(list.files.front()));
  std::string hashes;
  for (const DataFile& file : list.files) {
    const DataText read = read_data_text(file.path, WithHash::yes);
    add_text(builder, read.text, file.path.string(), tokenizer, settled(file));
    hashes += fmt::format("{}  {}\n", read.sha256, file.path.lexically_relative(path).string());
  }
  Dataset data = builder.finish(int64_t(list.files.size()));
  const bool folder = std::filesystem::is_directory(path);
  data.file_sha256_ = folder ? sha256_hex(hashes) : hashes.substr(0, hashes.find(' '));
  return data;
}

}  // namespace nibble
