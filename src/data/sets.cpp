// SPDX-License-Identifier: MIT
#include "data/sets.h"

#include <charconv>
#include <cmath>
#include <unordered_set>

#include "core/error.h"
#include "core/hash.h"
#include "core/rng.h"
#include "data/draw.h"
#include "data/records.h"

namespace nibble {
namespace {

void same_format(const std::filesystem::path& a, const std::filesystem::path& b) {
  if (lines_in(a) != lines_in(b)) {
    throw_usage("{} and {} have different formats", a.string(), b.string());
  }
}

std::string prompt_key(const DataLine& d) {
  return normalised(d.asked.empty() ? d.texts.front() : joined(d.asked));
}

}  // namespace

MixPart parse_mix_part(const std::string& text) {
  const size_t colon = text.rfind(':');
  if (colon == text.npos) return {text, 1};
  MixPart part{text.substr(0, colon), 0};
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data() + colon + 1, end, part.share);
  if (error != std::errc() || at != end || !std::isfinite(part.share) || part.share <= 0) {
    throw_usage("'{}': expected FILE or FILE:SHARE with a share above 0", text);
  }
  return part;
}

std::string mix_files(const std::vector<MixPart>& parts, int64_t size, uint64_t seed,
                      ExtraKeys extra) {
  std::vector<std::vector<DataLine>> files;
  double shares = 0;
  int64_t all = 0;
  for (const MixPart& p : parts) {
    same_format(parts.front().file, p.file);
    files.push_back(read_data_lines(p.file, extra));
    if (files.back().empty()) throw_format("{}: holds no line to mix", p.file.string());
    shares += p.share;
    all += int64_t(files.back().size());
  }
  const int64_t total = size > 0 ? size : all;
  Draw draw(seed, 400, 0);
  std::vector<const std::string*> lines;
  double until = 0;
  int64_t given = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    until += parts[i].share;
    const int64_t end = std::llround(double(total) * until / shares);
    std::vector<uint32_t> order;
    for (; given < end; ++given) {
      if (order.empty()) order = shuffled(uint32_t(files[i].size()), draw);
      lines.push_back(&files[i][order.back()].line);
      order.pop_back();
    }
  }
  std::string out;
  for (const uint32_t at : shuffled(uint32_t(lines.size()), draw)) out += *lines[at] + "\n";
  return out;
}

DedupResult dedup_files(const std::vector<std::filesystem::path>& files, SameBy same,
                        ExtraKeys extra) {
  DedupResult r;
  std::unordered_set<std::string> seen;
  for (const auto& file : files) {
    same_format(files.front(), file);
    for (const DataLine& d : read_data_lines(file, extra)) {
      if (seen.insert(same == SameBy::line ? d.line : prompt_key(d)).second) {
        r.text += d.line + "\n";
        ++r.kept;
      } else {
        ++r.dropped;
      }
    }
  }
  return r;
}

SplitResult split_file(const std::filesystem::path& file, double held_out_share, uint64_t seed,
                       ExtraKeys extra) {
  SplitResult r;
  for (const DataLine& d : read_data_lines(file, extra)) {
    const uint64_t h = hash_bytes(prompt_key(d), seed);
    const auto words = philox(h, 401, 0);
    if (uniform_double(words[0], words[1]) < held_out_share) {
      r.held_out += d.line + "\n";
      ++r.held_out_lines;
    } else {
      r.train += d.line + "\n";
      ++r.train_lines;
    }
  }
  return r;
}

}  // namespace nibble
