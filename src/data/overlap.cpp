// SPDX-License-Identifier: MIT
#include "data/overlap.h"

#include <nlohmann/json.hpp>
#include <unordered_map>
#include <unordered_set>

#include "core/error.h"
#include "core/file.h"
#include "data/records.h"
#include "tokenizer/unicode.h"
#include "tokenizer/vocabulary.h"

namespace nibble {
namespace {

using nlohmann::ordered_json;

struct Probe {
  std::string id, group, prompt, key;  // key: the prompt normalised
  std::vector<uint64_t> grams[2];      // of kLengths
};
constexpr size_t kLengths[2] = {4, 8};

// Hashes of all n-grams of the text's units: a Chinese character, a word, a digit.
std::vector<uint64_t> grams(std::string_view text, size_t n) {
  std::vector<std::string_view> units;
  const UnicodeTable& table = UnicodeTable::instance();
  for (size_t i = 0; i < text.size();) {
    const CodePoint c = decode_valid(text.data() + i);
    size_t end = i + c.length;
    if (c.value < 0x2e80 && table.char_class(c.value) == CharClass::letter) {
      while (end < text.size()) {
        const CodePoint d = decode_valid(text.data() + end);
        if (d.value >= 0x2e80 || table.char_class(d.value) != CharClass::letter) break;
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

std::vector<Probe> read_probes(const std::filesystem::path& file) {
  std::vector<Probe> out;
  try {
    const ordered_json j = ordered_json::parse(read_text_file(file));
    for (const ordered_json& p : j.at("probes")) {
      Probe probe{p.at("id").get<std::string>(), p.at("group").get<std::string>(), {}, {}, {}};
      for (const ordered_json& m : p.at("messages")) {
        if (m.at("role") != "user") continue;
        probe.prompt += (probe.prompt.empty() ? "" : "\n") + m.at("content").get<std::string>();
      }
      probe.key = normalised(probe.prompt);
      for (int i = 0; i < 2; ++i) probe.grams[i] = grams(probe.key, kLengths[i]);
      out.push_back(std::move(probe));
    }
  } catch (const ordered_json::exception& e) {
    throw_format("{}: not a probe file: {}", file.string(), e.what());
  }
  return out;
}

double share(const std::vector<uint64_t>& list, const std::unordered_map<uint64_t, bool>& met) {
  if (list.empty()) return 0;
  int64_t n = 0;
  for (const uint64_t h : list) n += met.at(h) ? 1 : 0;
  return double(n) / double(list.size());
}

}  // namespace

OverlapReport measure_overlap(const std::vector<std::filesystem::path>& training,
                              const std::filesystem::path& probes_file) {
  const std::vector<Probe> probes = read_probes(probes_file);
  std::unordered_map<std::string, bool> exact, equal;  // met in training?
  std::unordered_map<uint64_t, bool> gram;
  for (const Probe& p : probes) {
    exact[p.prompt] = equal[p.key] = false;
    for (const auto& list : p.grams) {
      for (const uint64_t h : list) gram[h] = false;
    }
  }
  OverlapReport report;
  std::unordered_set<std::string> known;  // most texts come often
  for (const auto& file : training) {
    for (const DataLine& d : read_data_lines(file)) {
      ++report.training_lines;
      if (const auto at = exact.find(d.prompt); at != exact.end()) at->second = true;
      if (const auto at = equal.find(normalised(d.prompt)); at != equal.end()) at->second = true;
      for (const std::string& t : d.texts) {
        if (!known.insert(t).second) continue;
        const std::string key = normalised(t);
        for (const size_t n : kLengths) {
          for (const uint64_t h : grams(key, n)) {
            if (const auto at = gram.find(h); at != gram.end()) at->second = true;
          }
        }
      }
    }
  }
  for (const Probe& p : probes) {
    const bool same = exact.at(p.prompt), alike = equal.at(p.key);
    if (same || alike) report.found.push_back(p.id);
    for (const std::string& group : {p.group, std::string("all")}) {
      OverlapCounts& c = report.groups[group];
      ++c.probes;
      c.exact += same ? 1 : 0;
      c.normalised += alike ? 1 : 0;
      c.grams4 += share(p.grams[0], gram);
      c.grams8 += share(p.grams[1], gram);
    }
  }
  return report;
}

}  // namespace nibble
