// SPDX-License-Identifier: MIT
// Load time and encode/decode speed of a tokenizer on one core.
//   bench_tokenizer tokenizer.json [text file ...]
// Without files the text is synthetic: random words, Chinese runs, numbers and punctuation, never
// repeated, which is harder than natural text. "first" is a fresh tokenizer, whose memory of whole
// words is empty; "again" is the same text once more.
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <functional>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/file.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/unicode.h"

namespace {

// Processor time: what one core needs, also when others use the machine.
double seconds(const std::function<void()>& f) {
  const std::clock_t start = std::clock();
  f();
  return double(std::clock() - start) / CLOCKS_PER_SEC;
}

std::string synthetic_text(size_t n_bytes) {
  std::string s;
  uint64_t state = 1;
  const auto below = [&state](uint64_t n) {  // splitmix64
    uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (z ^ (z >> 31)) % n;
  };
  const std::string_view onset = "bcdfghklmnprstvw", vowel = "aeiou";
  while (s.size() < n_bytes) {
    switch (below(4)) {
      case 0:
      case 1:
        s += ' ';
        for (uint64_t k = 1 + below(4); k > 0; --k) {
          s += onset[below(onset.size())];
          s += vowel[below(vowel.size())];
        }
        break;
      case 2:
        for (uint64_t k = 2 + below(18); k > 0; --k)
          nibble::append_utf8(s, char32_t(0x4e00 + below(3000)));
        s += "\uff0c";
        break;
      default: s += std::to_string(below(1000)) + (below(4) ? ", " : ".\n"); break;
    }
  }
  s.resize(nibble::valid_utf8_prefix(s));
  return s;
}

void measure(const std::string& tokenizer_path, const std::string& name, const std::string& text) {
  const auto tokenizer = nibble::Tokenizer::load(tokenizer_path);
  std::vector<int32_t> ids;
  const double first = seconds([&] { ids = tokenizer.encode(text); });
  const double again = seconds([&] { ids = tokenizer.encode(text); });
  std::string back;
  const double decode = seconds([&] { back = tokenizer.decode(ids); });
  const double mb = double(text.size()) / 1e6;
  fmt::print(
      "{}: {:.2f} MB, {} tokens, encode first {:.1f} MB/s, again {:.1f} MB/s, decode {:.1f} MB/s\n",
      name, mb, ids.size(), mb / first, mb / again, mb / decode);
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 2) nibble::throw_usage("bench_tokenizer tokenizer.json [text file ...]");
  std::vector<double> loads;
  for (int i = 0; i < 7; ++i) {
    loads.push_back(seconds([&] { nibble::Tokenizer::load(argv[1]); }));
  }
  std::sort(loads.begin(), loads.end());
  fmt::print("load: best {:.3f} s, median {:.3f} s, worst {:.3f} s\n", loads.front(),
             loads[loads.size() / 2], loads.back());
  if (argc == 2) measure(argv[1], "synthetic", synthetic_text(8'000'000));
  for (int i = 2; i < argc; ++i) measure(argv[1], argv[i], nibble::read_text_file(argv[i]));
  return 0;
} catch (const nibble::Error& e) {
  fmt::print(stderr, "{}\n", e.what());
  return int(e.code());
}
