// SPDX-License-Identifier: MIT
#include "apps/options/data_options.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "apps/options/train_options.h"
#include "core/error.h"
#include "core/text/nearest_name.h"

namespace nibble {
namespace {

using Actions = std::vector<std::string>;
const Actions kActions = {"corpus", "tokenizer", "probes", "identity", "whoami",
                          "mix",    "dedup",     "split",  "overlap"};

// Which actions a flag belongs to.
const std::vector<std::pair<const char*, Actions>>& owners() {
  static const std::vector<std::pair<const char*, Actions>> all = {
      {"--in", {"tokenizer", "mix", "dedup", "split", "overlap"}},
      {"--out", {"corpus", "tokenizer", "probes", "identity", "whoami", "mix", "dedup", "split"}},
      {"--strict-data", {"tokenizer", "mix", "dedup", "split", "overlap"}},
      {"--held-out", {"split"}},
      {"--probes", {"overlap"}},
      {"--seed", {"corpus", "probes", "identity", "whoami", "mix", "split"}},
      {"--size", {"corpus", "identity", "whoami", "mix"}},
      {"--identity-share", {"identity"}},
      {"--disambiguation-share", {"identity"}},
      {"--conversation-share", {"identity"}},
      {"--identity-zh", {"probes", "identity", "whoami"}},
      {"--identity-en", {"probes", "identity"}},
      {"--target", {"whoami"}},
      {"--name", {"probes"}},
      {"--held-out-share", {"split"}},
      {"--same", {"dedup"}},
      {"--vocab-size", {"tokenizer"}},
      {"--threads", {"corpus"}}};
  return all;
}

}  // namespace

void DataOptions::visit_fields(Fields& f) {
  fields = &f;
  f.add(action, {.flag = "ACTION",
                 .help = "corpus, tokenizer, probes, identity, whoami, mix, dedup, split or "
                         "overlap",
                 .choices = {"corpus", "tokenizer", "probes", "identity", "whoami", "mix", "dedup",
                             "split", "overlap"},
                 .required = true});
  f.section("Files");
  f.add(inputs,
        {.flag = "--in",
         .help = "A data file to read, or a folder of them (mix: FILE:SHARE); tokenizer, mix, "
                 "dedup, split, overlap",
         .value = "FILE",
         .aliases = {"--corpus", "--train"}});
  f.add(strict_data, {.flag = "--strict-data", .help = kStrictDataHelp});
  f.add(out, {.flag = "--out",
              .help = "What to write; corpus: a directory. Nothing existing is overwritten",
              .value = "PATH",
              .aliases = {"--output"}});
  f.add(held_out, {.flag = "--held-out", .help = "split: the held-out part", .value = "FILE"});
  f.add(probes, {.flag = "--probes", .help = "overlap: the probe file", .value = "FILE"});
  f.section("Content");
  f.add(seed, {.flag = "--seed", .help = "The same seed makes the same bytes"});
  f.add(size, {.flag = "--size",
               .help = "Documents or lines to make: corpus 600000, identity 2000, whoami 1000, "
                       "mix: all",
               .aliases = {"--count"},
               .least = 1,
               .most = 1e9});
  f.add(identity_share, {.flag = "--identity-share",
                         .help = "identity: share of questions about the model",
                         .least = 0,
                         .most = 1});
  f.add(disambiguation_share,
        {.flag = "--disambiguation-share",
         .help = "identity: share of questions about the asker and others; the rest is retention",
         .least = 0,
         .most = 1});
  f.add(conversation_share,
        {.flag = "--conversation-share",
         .help = "identity: share of conversations about who is who, with names given before",
         .least = 0,
         .most = 1});
  f.add(identity_zh, {.flag = "--identity-zh", .help = "The new identity, asked in Chinese"});
  f.add(identity_en, {.flag = "--identity-en", .help = "The new identity, asked in English"});
  f.add(target, {.flag = "--target", .help = "whoami: the one target; default: --identity-zh"});
  f.add(name, {.flag = "--name", .help = "probes: the name of the set"});
  f.add(held_out_share, {.flag = "--held-out-share",
                         .help = "split: share of the prompts that is held out",
                         .least = 0,
                         .most = 1});
  f.add_choice(same, {.flag = "--same", .help = "dedup: what makes two lines the same"},
               {{"line", SameBy::line}, {"prompt", SameBy::prompt}});
  f.add(vocab_size, {.flag = "--vocab-size",
                     .help = "tokenizer: tokens at most, special ones included",
                     .least = 300,
                     .most = 1 << 20});
  f.add(threads, {.flag = "--threads",
                  .help = "CPU threads; 0 takes every CPU this process may use",
                  .least = 0,
                  .most = 1024});
}

void DataOptions::check() const {
  if (std::ranges::find(kActions, action) == kActions.end()) {
    const std::string near = nearest_name(action, kActions);
    throw_usage(
        "data: unknown action '{}'{}", action,
        near.empty() ? "; see nibble data --help" : fmt::format(": did you mean {}?", near));
  }
  for (const Field& f : fields->all()) {
    // A run-config may hold every key; what is typed is meant.
    if (!f.given_as.starts_with("-")) continue;
    for (const auto& [flag, actions] : owners()) {
      if (f.info.flag != flag || std::ranges::find(actions, action) != actions.end()) continue;
      throw_usage("{} says nothing to data {}: it belongs to {}", f.given_as, action,
                  fmt::join(actions, ", "));
    }
  }
  if (target) {
    const auto both = std::ranges::find(fields->all(), "--identity-zh",
                                        [](const Field& f) { return f.info.flag; });
    if (both->given_as.starts_with("-")) {
      throw_usage("--target and --identity-zh both say what the answer is; give one");
    }
  }
}

}  // namespace nibble
