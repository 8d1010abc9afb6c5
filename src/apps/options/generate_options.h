// SPDX-License-Identifier: MIT
// Flags of text generation, the same in every command that generates.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "apps/options/options.h"
#include "apps/terminal/output_buffer.h"
#include "core/text/visible.h"
#include "generate/generator.h"
#include "runtime/runtime.h"

namespace nibble {

// How the next token is drawn: SampleOptions, or SampleFlags where the model's files have a say.
template <class Sampling>
void visit_sampling(Fields& f, Sampling& sample) {
  constexpr bool files = std::is_same_v<Sampling, SampleFlags>;
  f.add(sample.temperature, {.flag = "--temp",
                             .help = files ? "Temperature; 0 or less is greedy. This and the next "
                                             "four are the model's own (generation_config.json) "
                                             "unless given; without either, greedy"
                                           : "Temperature; 0 or less is greedy",
                             .value = "T",
                             .aliases = {"--temperature"},
                             .common = true});
  f.add(sample.top_k, {.flag = "--top-k",
                       .help = "Draw from the K likeliest tokens; 0: all",
                       .value = "K",
                       .least = 0});
  f.add(sample.top_p,
        {.flag = "--top-p",
         .help =
             "Draw from the likeliest tokens that together reach P; the one that crosses it stays",
         .value = "P",
         .aliases = {"--topp"},
         .most = 1,
         .above = 0});
  f.add(sample.min_p, {.flag = "--min-p",
                       .help = "Drop tokens less likely than P times the likeliest",
                       .value = "P",
                       .least = 0,
                       .most = 1});
  f.add(sample.repetition_penalty,
        {.flag = "--repetition-penalty",
         .help = "Above 1, tokens already in the context become less likely",
         .value = "X",
         .above = 0});
  f.add(sample.seed, {.flag = "--seed", .help = "Seed of the draws (64 bits)", .value = "N"});
}

struct GenerateFlags {
  int64_t max_tokens = 256;
  SampleFlags sample;
  std::vector<std::string> stop;
  bool ignore_eos = false;
  bool stop_on_repetition = false;
  int64_t timeout_ms = 0;

  void visit_fields(Fields& f) {
    f.section("Generation");
    f.add(max_tokens, {.flag = "--max-tokens",
                       .help = "Tokens a reply may have",
                       .value = "N",
                       .aliases = {"-n"},
                       .least = 1,
                       .most = 1 << 30,
                       .common = true});
    visit_sampling(f, sample);
    f.add(stop, {.flag = "--stop",
                 .help = "End the reply where this text would come, and do not show it; may be "
                         "given several times",
                 .value = "TEXT"});
    f.add(ignore_eos, {.flag = "--ignore-eos", .help = "Do not stop at end tokens"});
    f.add(stop_on_repetition, {.flag = "--stop-on-repetition",
                               .help = "Stop when the reply only repeats its own tail"});
    f.add(timeout_ms, {.flag = "--timeout-ms",
                       .help = "End a reply after this time; 0: no limit",
                       .value = "MS",
                       .least = 0,
                       .most = 1 << 30});
  }

  // For a model; the log says which of its own wishes count.
  GenerateOptions options(const Runtime& rt, const CacheOptions& cache) const {
    GenerateOptions o;
    o.max_tokens = max_tokens;
    if (!ignore_eos) o.stop_ids = rt.stop_ids();
    o.sample = sample.over(rt.generation);
    o.replay = !cache.use_kvc;
    o.timeout_s = double(timeout_ms) / 1000;
    o.stop_on_repetition = stop_on_repetition;
    return o;
  }
};

// What the control characters of a reply become. A model writes what it likes, and a terminal
// obeys.
struct EscapesFlag {
  enum class Choice { automatic, visible, raw } choice = Choice::automatic;

  void visit_fields(Fields& f) {
    f.add_choice(choice,
                 {.flag = "--escapes",
                  .help = "Control characters of the reply, which a terminal would obey: spelled "
                          "out (\\x1b), as they are, or (auto) spelled out on a terminal and as "
                          "they are in a pipe or a file"},
                 {{"auto", Choice::automatic}, {"visible", Choice::visible}, {"raw", Choice::raw}});
  }
  // Where replies go to.
  void apply(std::ostream& out) const {
    OutputBuffer* const buffer = output_buffer(out);
    if (choice == Choice::raw && buffer) buffer->set_controls(Controls::raw);
  }
  // A piece of whole characters.
  std::string shown(std::string_view piece) const {
    return choice == Choice::visible ? visible_text(piece) : std::string(piece);
  }
};

}  // namespace nibble
