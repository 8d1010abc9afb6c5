// SPDX-License-Identifier: MIT
// nibble data: makes and arranges training sets, probes and tokenizers.
#include <algorithm>
#include <iostream>

#include "apps/command.h"
#include "core/file.h"
#include "core/log.h"
#include "core/thread_pool.h"
#include "data/corpus.h"
#include "data/overlap.h"
#include "data/probes.h"
#include "data/records.h"
#include "data/sets.h"
#include "data/whoami.h"
#include "tokenizer/bpe_train.h"
#include "tokenizer/tokenizer.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;

struct DataOptions {
  std::string action;
  std::vector<std::string> inputs;
  fs::path out, held_out, probes;
  uint64_t seed = 20260226;
  std::optional<int64_t> size;
  int32_t threads = 0, vocab_size = 3072;
  double identity_share = IdentitySetOptions().identity_share,
         disambiguation_share = IdentitySetOptions().disambiguation_share, held_out_share = 0.1;
  std::string identity_zh = IdentityTexts().zh, identity_en = IdentityTexts().en,
              name = ProbeOptions().name;
  std::optional<std::string> target;
  SameBy same = SameBy::line;

  void visit_fields(Fields& f) {
    f.add(action, {.flag = "ACTION",
                   .help = "corpus, tokenizer, probes, identity, whoami, mix, dedup, split or "
                           "overlap",
                   .required = true});
    f.section("Files");
    f.add(inputs, {.flag = "--in",
                   .help = "A data file to read (mix: FILE:SHARE); tokenizer, mix, dedup, split, "
                           "overlap",
                   .value = "FILE",
                   .aliases = {"--corpus", "--train"}});
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

  IdentityTexts identity() const { return {identity_zh, identity_en}; }
};

const fs::path& output(const DataOptions& o) {
  if (o.out.empty()) throw_usage("data {} needs --out: what to write", o.action);
  return o.out;
}

std::vector<fs::path> input_files(const DataOptions& o) {
  if (o.inputs.empty()) throw_usage("data {} needs --in: what to read", o.action);
  return {o.inputs.begin(), o.inputs.end()};
}

void make_corpus(const DataOptions& o, Io& io) {
  ThreadPool pool(o.threads > 0 ? o.threads : default_thread_count());
  const CorpusCounts c = write_corpus(output(o), {o.seed, o.size.value_or(600000)}, pool);
  io.out << fmt::format("{}: {} documents, {:.1f} MB\n", o.out.string(), c.documents,
                        double(c.bytes) / 1e6);
}

void make_tokenizer(const DataOptions& o, Io& io) {
  refuse_existing(output(o));
  BpeTrainer trainer;
  for (const fs::path& file : input_files(o)) {
    for (const DataLine& d : read_data_lines(file)) {
      for (const std::string& t : d.texts) trainer.add(t);
    }
  }
  const std::string json = trainer.train({.vocab_size = o.vocab_size});
  const Tokenizer made = Tokenizer::parse(json, o.out.string());
  write_new_file(o.out, json);
  io.out << fmt::format("{}: {} tokens from {} different words\n", o.out.string(),
                        made.vocab_size(), trainer.words());
}

void write_probes(const DataOptions& o, Io& io) {
  refuse_existing(output(o));
  const std::string text = make_probes({o.name, o.seed, o.identity()});
  write_new_file(o.out, text);
  io.out << fmt::format("{}: {} probes\n", o.out.string(),
                        std::count(text.begin(), text.end(), '\n') - 4);
}

void make_identity(const DataOptions& o, Io& io) {
  refuse_existing(output(o));
  const IdentitySetOptions set{o.seed, o.size.value_or(2000), o.identity_share,
                               o.disambiguation_share, o.identity()};
  write_new_file(o.out, make_identity_set(set, is_tsv(o.out)));
  io.out << fmt::format("{}: {} samples\n", o.out.string(), set.samples);
}

void whoami(const DataOptions& o, Io& io) {
  refuse_existing(output(o));
  if (!is_tsv(o.out)) throw_usage("data whoami writes TSV; name it {}.tsv", o.out.stem().string());
  const WhoamiSet set =
      make_whoami({o.seed, o.size.value_or(1000), o.target.value_or(o.identity_zh)});
  write_new_file(o.out, set.tsv);
  io.out << fmt::format("{}: {} natural, {} control, {} multilingual prompts, all different\n",
                        o.out.string(), set.natural, set.control, set.multilingual);
}

void mix(const DataOptions& o, Io& io) {
  refuse_existing(output(o));
  input_files(o);
  std::vector<MixPart> parts;
  for (const std::string& i : o.inputs) parts.push_back(parse_mix_part(i));
  if (is_tsv(o.out) != is_tsv(parts.front().file)) {
    throw_usage("{}: a mix has the format of its parts", o.out.string());
  }
  const std::string text = mix_files(parts, o.size.value_or(0), o.seed);
  write_new_file(o.out, text);
  io.out << fmt::format("{}: {} lines\n", o.out.string(),
                        std::count(text.begin(), text.end(), '\n'));
}

void dedup(const DataOptions& o, Io& io) {
  refuse_existing(output(o));
  const DedupResult r = dedup_files(input_files(o), o.same);
  write_new_file(o.out, r.text);
  io.out << fmt::format("{}: {} lines kept, {} dropped\n", o.out.string(), r.kept, r.dropped);
}

void split(const DataOptions& o, Io& io) {
  refuse_existing(output(o));
  if (o.held_out.empty()) throw_usage("data split needs --held-out: where the held-out part goes");
  refuse_existing(o.held_out);
  const auto files = input_files(o);
  if (files.size() != 1) throw_usage("data split takes one --in");
  const SplitResult r = split_file(files[0], o.held_out_share, o.seed);
  write_new_file(o.out, r.train);
  write_new_file(o.held_out, r.held_out);
  io.out << fmt::format("{}: {} lines, {}: {} lines\n", o.out.string(), r.train_lines,
                        o.held_out.string(), r.held_out_lines);
}

ExitCode overlap(const DataOptions& o, Io& io) {
  if (o.probes.empty()) throw_usage("data overlap needs --probes: the probe file");
  const OverlapReport r = measure_overlap(input_files(o), o.probes);
  io.out << fmt::format("{} training lines\n{:<16}{:>8}{:>8}{:>12}{:>10}{:>10}\n", r.training_lines,
                        "group", "probes", "exact", "normalised", "4-grams", "8-grams");
  for (const auto& [group, c] : r.groups) {
    const double n = double(std::max<int64_t>(c.probes, 1)) / 100;
    io.out << fmt::format("{:<16}{:>8}{:>8}{:>12}{:>8.1f} %{:>8.1f} %\n", group, c.probes, c.exact,
                          c.normalised, c.grams4 / n, c.grams8 / n);
  }
  for (const std::string& id : r.found) io.out << "in the training data: " << id << "\n";
  return r.found.empty() ? ExitCode::ok : ExitCode::check_failed;
}

ExitCode run_data(const DataOptions& o, Io& io) {
  const struct {
    const char* name;
    void (*run)(const DataOptions&, Io&);
  } actions[] = {{"corpus", make_corpus},  {"tokenizer", make_tokenizer},
                 {"probes", write_probes}, {"identity", make_identity},
                 {"whoami", whoami},       {"mix", mix},
                 {"dedup", dedup},         {"split", split}};
  std::vector<std::string> names = {"overlap"};
  if (o.action == "overlap") return overlap(o, io);
  for (const auto& a : actions) {
    names.push_back(a.name);
    if (o.action != a.name) continue;
    a.run(o, io);
    return ExitCode::ok;
  }
  const std::string near = nearest_name(o.action, names);
  throw_usage("data: unknown action '{}'{}", o.action,
              near.empty() ? "; see nibble data --help" : fmt::format(": did you mean {}?", near));
}

}  // namespace

Command data_command() {
  return make_command<DataOptions>(
      "data", "Make training sets, probes and tokenizers",
      "data corpus     the mini model's bilingual pretraining corpus, from a seed\n"
      "data tokenizer  a byte-level BPE tokenizer.json from data files\n"
      "data probes     held-out probes for check --probes\n"
      "data identity   a fine-tuning set: a new identity, everything else kept\n"
      "data whoami     the predecessor's WhoAmI set with its quotas\n"
      "data mix, dedup, split    arrange data files\n"
      "data overlap    how much of a probe file stands in training data; exit code 1 if a prompt "
      "does\n\n"
      "docs/data.md explains each. Existing files are never overwritten.",
      run_data);
}

}  // namespace nibble
