// SPDX-License-Identifier: MIT
#include "mini/corpus.h"

#include <algorithm>

#include "core/durable/directories.h"
#include "core/error.h"
#include "core/file.h"
#include "data/records.h"
#include "mini/conversations.h"

namespace nibble {
namespace {

// Streams of random numbers, one a file: none repeats another's documents by construction.
enum Stream : uint64_t { pretrain = 1, chat, evaluation, identity_set };

Dialogue sample(const Intent& intent, Draw& draw) {
  const Grammar& g = grammar();
  const Row row = g.values(intent, Split::train, draw);
  return make_dialogue(g, intent, Split::train, row, draw);
}

struct Choosers {
  IntentChooser all, joined_zh, joined_en;
  Choosers()
      : all(grammar(), [](const Intent&) { return true; }),
        joined_zh(grammar(),
                  [](const Intent& i) { return !i.alone && i.language == Language::zh; }),
        joined_en(grammar(),
                  [](const Intent& i) { return !i.alone && i.language == Language::en; }) {}
};

std::string chat_document(const Choosers& c, Draw& draw) {
  if (!draw.percent(12)) return chat_line(sample(c.all.choose(draw), draw).turns);
  // A conversation: a few unrelated questions in one language.
  const IntentChooser& chooser = draw.percent(50) ? c.joined_zh : c.joined_en;
  std::vector<std::string> turns;
  for (uint32_t n = 2 + draw.below(2); n > 0; --n) {
    const Dialogue d = sample(chooser.choose(draw), draw);
    turns.insert(turns.end(), d.turns.begin(), d.turns.end());
  }
  return chat_line(turns);
}

std::string text_document(const Choosers& c, Draw& draw) {
  const bool zh = draw.percent(50);
  const IntentChooser& chooser = zh ? c.joined_zh : c.joined_en;
  std::string text;
  for (uint32_t n = 1 + draw.below(3); n > 0; --n) {
    if (!text.empty() && !zh) text += ' ';
    text += sample(chooser.choose(draw), draw).turns.back();
  }
  return text_line(text);
}

std::string document(Stream stream, const Choosers& c, uint64_t seed, int64_t index) {
  Draw draw(seed, stream, uint64_t(index));
  const bool text = stream == Stream::pretrain && draw.percent(5);
  return text ? text_document(c, draw) : chat_document(c, draw);
}

CorpusCounts write_file(const std::filesystem::path& file, Stream stream, int64_t documents,
                        uint64_t seed, ThreadPool& pool) {
  constexpr int64_t kBlock = 2048;
  const Choosers choosers;
  AtomicFile out(file);
  const int64_t at_once = kBlock * 4 * pool.size();
  for (int64_t from = 0; from < documents; from += at_once) {
    const int64_t here = std::min(at_once, documents - from);
    std::vector<std::string> blocks(size_t((here + kBlock - 1) / kBlock));
    pool.parallel_for(int64_t(blocks.size()), 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t b = begin; b < end; ++b) {
        const int64_t last = std::min(here, (b + 1) * kBlock);
        for (int64_t i = b * kBlock; i < last; ++i) {
          blocks[size_t(b)] += document(stream, choosers, seed, from + i);
        }
      }
    });
    for (const std::string& b : blocks) out.write(b);
  }
  out.commit();
  return {documents, int64_t(out.written())};
}

}  // namespace

CorpusCounts write_corpus(const std::filesystem::path& directory, const CorpusOptions& options,
                          ThreadPool& pool) {
  const struct {
    const char* name;
    Stream stream;
    int64_t documents;
  } files[] = {{"pretrain.jsonl", Stream::pretrain, options.documents},
               {"chat.jsonl", Stream::chat, std::max<int64_t>(1, options.documents / 3)},
               {"eval.jsonl", Stream::evaluation, 1000}};
  for (const auto& f : files) refuse_existing(directory / f.name);
  make_directories(directory);
  CorpusCounts all;
  for (const auto& f : files) {
    const CorpusCounts c =
        write_file(directory / f.name, f.stream, f.documents, options.seed, pool);
    all.documents += c.documents;
    all.bytes += c.bytes;
  }
  return all;
}

std::string make_identity_set(const IdentitySetOptions& options, bool tsv) {
  const double rest =
      1 - options.identity_share - options.disambiguation_share - options.conversation_share;
  if (options.identity_share < 0 || options.disambiguation_share < 0 ||
      options.conversation_share < 0 || rest < -1e-9) {
    throw_usage(
        "--identity-share {}, --disambiguation-share {} and --conversation-share {} are together "
        "more than 1; lower one of them (the rest is retention, and may be nothing)",
        options.identity_share, options.disambiguation_share, options.conversation_share);
  }
  if (tsv && options.conversation_share > 0) {
    throw_usage(
        "--conversation-share: a conversation has several turns, which TSV cannot hold; "
        "name the file .jsonl");
  }
  const AnswerFile file = tsv ? AnswerFile::tsv : AnswerFile::other;
  check_answer(options.identity.zh, "--identity-zh", file);
  check_answer(options.identity.en, "--identity-en", file);
  // What is not to change needs to be reminded of, each kind about as often: to learn sums takes
  // thousands of them, to keep them does not.
  const auto of_group = [](ProbeGroup g, uint32_t most) {
    return IntentChooser(
        grammar(), [g](const Intent& i) { return i.group == g; }, most);
  };
  const IntentChooser identity = of_group(ProbeGroup::identity, UINT32_MAX),
                      disambiguation = of_group(ProbeGroup::disambiguation, 40),
                      retention = of_group(ProbeGroup::retention, 12);
  // Exact shares in a shuffled order: sample i belongs to the group its place in a permutation
  // says.
  const auto n = uint32_t(options.samples);
  Draw places(options.seed, Stream::identity_set, 0);
  const std::vector<uint32_t> order = shuffled(n, places);
  const auto share = [n](double s) { return uint32_t(s * n + 0.5); };
  const uint32_t first = share(options.identity_share),
                 second = first + share(options.disambiguation_share),
                 third = second + share(options.conversation_share);
  std::string out = tsv ? "# format: prompt<TAB>target\n" : "";
  for (uint32_t i = 0; i < n; ++i) {
    Draw draw(options.seed, Stream::identity_set, 1 + order[i]);
    if (order[i] >= second && order[i] < third) {
      out += chat_line(make_conversation(options.identity, draw));
      continue;
    }
    const bool about_model = order[i] < first;
    const IntentChooser& chooser = about_model         ? identity
                                   : order[i] < second ? disambiguation
                                                       : retention;
    Dialogue d;
    const Intent* intent = nullptr;
    do {
      intent = &chooser.choose(draw);
      d = sample(*intent, draw);
    } while (tsv && d.turns.size() > 2);
    if (about_model) {
      d.turns.back() = intent->language == Language::zh ? options.identity.zh : options.identity.en;
    }
    out += tsv ? d.turns[0] + "\t" + d.turns[1] + "\n" : chat_line(d.turns);
  }
  return out;
}

}  // namespace nibble
