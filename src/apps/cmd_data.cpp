// SPDX-License-Identifier: MIT
// nibble data: makes and arranges training sets, probes and tokenizers.
#include <algorithm>
#include <iostream>

#include "apps/command.h"
#include "apps/options/data_options.h"
#include "core/file.h"
#include "core/log.h"
#include "core/thread_pool.h"
#include "data/overlap.h"
#include "data/records.h"
#include "data/sets.h"
#include "data/whoami.h"
#include "eval/probe_file.h"
#include "mini/corpus.h"
#include "mini/probes.h"
#include "runtime/output_files.h"
#include "tokenizer/bpe_train.h"
#include "tokenizer/tokenizer.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;

const fs::path& output(const DataOptions& o) {
  if (o.out.empty()) throw_usage("data {} needs --out: what to write", o.action);
  return o.out;
}

std::vector<fs::path> input_files(const DataOptions& o) {
  if (o.inputs.empty()) throw_usage("data {} needs --in: what to read", o.action);
  return {o.inputs.begin(), o.inputs.end()};
}

// Lines are copied as they are, so what they are written to has the format of what they come from.
void keeps_format(const DataOptions& o, const fs::path& out, const fs::path& in) {
  if (lines_for(out) == lines_in(in)) return;
  throw_usage("data {} keeps the format of its lines: {} and {} do not have the same", o.action,
              in.string(), out.string());
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
    for (const DataLine& d : read_data_lines(file, o.extra())) {
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
  const IdentitySetOptions set{o.seed,           o.size.value_or(2000),
                               o.identity_share, o.disambiguation_share,
                               o.identity(),     o.conversation_share};
  write_new_file(o.out, make_identity_set(set, lines_for(o.out) == LineFormat::tsv));
  io.out << fmt::format("{}: {} samples\n", o.out.string(), set.samples);
}

void whoami(const DataOptions& o, Io& io) {
  refuse_existing(output(o));
  if (lines_for(o.out) != LineFormat::tsv)
    throw_usage("data whoami writes TSV; name it {}.tsv", o.out.stem().string());
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
  keeps_format(o, o.out, parts.front().file);
  const std::string text = mix_files(parts, o.size.value_or(0), o.seed, o.extra());
  write_new_file(o.out, text);
  io.out << fmt::format("{}: {} lines\n", o.out.string(),
                        std::count(text.begin(), text.end(), '\n'));
}

void dedup(const DataOptions& o, Io& io) {
  refuse_existing(output(o));
  const auto files = input_files(o);
  keeps_format(o, o.out, files.front());
  const DedupResult r = dedup_files(files, o.same, o.extra());
  write_new_file(o.out, r.text);
  io.out << fmt::format("{}: {} lines kept, {} dropped\n", o.out.string(), r.kept, r.dropped);
}

void split(const DataOptions& o, Io& io) {
  refuse_existing(output(o));
  if (o.held_out.empty()) throw_usage("data split needs --held-out: where the held-out part goes");
  refuse_existing(o.held_out);
  const auto files = input_files(o);
  if (files.size() != 1) throw_usage("data split takes one --in");
  refuse_same_output({{"--out", o.out}, {"--held-out", o.held_out}});
  keeps_format(o, o.out, files[0]);
  keeps_format(o, o.held_out, files[0]);
  const SplitResult r = split_file(files[0], o.held_out_share, o.seed, o.extra());
  write_new_files(o.out, r.train, o.held_out, r.held_out);
  io.out << fmt::format("{}: {} lines, {}: {} lines\n", o.out.string(), r.train_lines,
                        o.held_out.string(), r.held_out_lines);
}

// "12.3 % of 45": of those probes that are long enough.
std::string gram_text(const GramShare& g) {
  return g.probes > 0 ? fmt::format("{:.1f} % of {}", 100 * g.mean(), g.probes) : "none so long";
}

ExitCode overlap(const DataOptions& o, Io& io) {
  if (o.probes.empty()) throw_usage("data overlap needs --probes: the probe file");
  const auto files = input_files(o);
  std::vector<OverlapProbe> probes;
  for (const Probe& p : read_probes(o.probes).set.probes) {
    OverlapProbe& to = probes.emplace_back(OverlapProbe{p.id, p.group, {}});
    for (const Message& m : p.messages) {
      if (m.role == Role::user) to.asked.push_back(m.content);
    }
  }
  const OverlapReport r = measure_overlap(files, probes, o.extra());
  io.out << fmt::format("{} training lines\n{:<16}{:>8}{:>8}{:>12}{:>17}{:>17}\n", r.training_lines,
                        "group", "probes", "exact", "normalised", "4-grams", "8-grams");
  for (const auto& [group, c] : r.groups) {
    io.out << fmt::format("{:<16}{:>8}{:>8}{:>12}{:>17}{:>17}\n", group, c.probes, c.exact,
                          c.normalised, gram_text(c.grams4), gram_text(c.grams8));
  }
  for (const std::string& id : r.found) io.out << "in the training data: " << id << "\n";
  return r.found.empty() ? ExitCode::ok : ExitCode::check_failed;
}

ExitCode run_data(const DataOptions& o, Io& io) {
  o.check();
  const struct {
    const char* name;
    void (*run)(const DataOptions&, Io&);
  } actions[] = {{"corpus", make_corpus},  {"tokenizer", make_tokenizer},
                 {"probes", write_probes}, {"identity", make_identity},
                 {"whoami", whoami},       {"mix", mix},
                 {"dedup", dedup},         {"split", split}};
  if (o.action == "overlap") return overlap(o, io);
  for (const auto& a : actions) {
    if (o.action == a.name) a.run(o, io);
  }
  return ExitCode::ok;
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
