// SPDX-License-Identifier: MIT
#include "data/overlap.h"

#include <set>
#include <unordered_map>
#include <unordered_set>

#include "core/hash.h"
#include "data/records.h"
#include "tokenizer/unicode.h"

namespace nibble {
namespace {

struct Prompt {
  std::string text, key;           // key: normalised
  std::vector<uint64_t> grams[2];  // of kLengths
};
constexpr size_t kLengths[2] = {4, 8};

// Hashes of all n-grams of the text's units: a Chinese character, a word, a digit.
std::vector<uint64_t> grams(std::string_view text, size_t n) {
  std::vector<std::string_view> units;
  const UnicodeTable& table = UnicodeTable::instance();
  for (size_t i = 0; i < text.size();) {
    const CodePoint c = decode_valid(text.data() + i);
    size_t end = i + c.length;
    if (c.value < kFirstCjk && table.char_class(c.value) == CharClass::letter) {
      while (end < text.size()) {
        const CodePoint d = decode_valid(text.data() + end);
        if (d.value >= kFirstCjk || table.char_class(d.value) != CharClass::letter) break;
        end += d.length;
      }
    }
    if (table.char_class(c.value) != CharClass::space) units.push_back(text.substr(i, end - i));
    i = end;
  }
  std::vector<uint64_t> out;
  for (size_t i = 0; i + n <= units.size(); ++i) {
    uint64_t h = n;
    for (size_t k = 0; k < n; ++k) h = hash_bytes(units[i + k], h);
    out.push_back(h);
  }
  return out;
}

Prompt prompt_of(const OverlapProbe& probe) {
  Prompt p{joined(probe.asked), {}, {}};
  p.key = normalised(p.text);
  for (int i = 0; i < 2; ++i) p.grams[i] = grams(p.key, kLengths[i]);
  return p;
}

// Everything in a line that could be a prompt of one of these numbers of turns.
template <class Use>
void for_each_prompt(const DataLine& d, const std::set<size_t>& turns, Use&& use) {
  for (const size_t n : turns) {
    for (size_t i = 0; i + n <= d.asked.size(); ++i) use(joined(std::span(d.asked).subspan(i, n)));
  }
  if (!d.asked.empty()) return;
  const std::string& text = d.texts.front();
  use(text);
  if (text.find('\n') == text.npos) return;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    use(text.substr(at, end - at));
    at = end + 1;
  }
}

void add_share(GramShare& to, const std::vector<uint64_t>& list,
               const std::unordered_map<uint64_t, bool>& met) {
  if (list.empty()) return;
  int64_t n = 0;
  for (const uint64_t h : list) n += met.at(h) ? 1 : 0;
  ++to.probes;
  to.sum += double(n) / double(list.size());
}

}  // namespace

OverlapReport measure_overlap(const std::vector<std::filesystem::path>& training,
                              const std::vector<OverlapProbe>& probes, ExtraKeys extra) {
  std::unordered_map<std::string, bool> exact, equal;  // met in training?
  std::unordered_map<uint64_t, bool> gram;
  std::vector<Prompt> prompts;
  std::set<size_t> turns;
  for (const OverlapProbe& probe : probes) {
    const Prompt& p = prompts.emplace_back(prompt_of(probe));
    exact[p.text] = equal[p.key] = false;
    for (const auto& list : p.grams) {
      for (const uint64_t h : list) gram[h] = false;
    }
    turns.insert(probe.asked.size());
  }
  OverlapReport report;
  std::unordered_set<std::string> known;  // most texts come often
  const auto look = [&](const DataLine& d) {
    ++report.training_lines;
    for_each_prompt(d, turns, [&](const std::string& text) {
      if (const auto at = exact.find(text); at != exact.end()) at->second = true;
      if (const auto at = equal.find(normalised(text)); at != equal.end()) at->second = true;
    });
    for (const std::string& t : d.texts) {
      if (!known.insert(t).second) continue;
      const std::string key = normalised(t);
      for (const size_t n : kLengths) {
        for (const uint64_t h : grams(key, n)) {
          if (const auto at = gram.find(h); at != gram.end()) at->second = true;
        }
      }
    }
  };
  for (const auto& file : training) for_each_data_line(file, look, extra);
  for (size_t i = 0; i < probes.size(); ++i) {
    const Prompt& p = prompts[i];
    const bool same = exact.at(p.text), alike = equal.at(p.key);
    if (same || alike) report.found.push_back(probes[i].id);
    for (const std::string& group : {probes[i].group, std::string("all")}) {
      OverlapCounts& c = report.groups[group];
      ++c.probes;
      c.exact += same ? 1 : 0;
      c.normalised += alike ? 1 : 0;
      add_share(c.grams4, p.grams[0], gram);
      add_share(c.grams8, p.grams[1], gram);
    }
  }
  return report;
}

}  // namespace nibble
