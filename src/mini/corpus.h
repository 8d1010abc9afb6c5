// SPDX-License-Identifier: MIT
// Data sets from the grammar: the pretraining corpus, and the mix for an identity fine-tune.
// The same seed and size give the same bytes on every machine, whatever the number of threads.
#pragma once
#include <filesystem>
#include <string>

#include "core/thread_pool.h"
#include "mini/grammar.h"

namespace nibble {

struct CorpusOptions {
  uint64_t seed = 1;
  int64_t documents = 600000;  // of pretrain.jsonl; chat.jsonl has a third of it
};
struct CorpusCounts {
  int64_t documents = 0, bytes = 0;
};
// Writes pretrain.jsonl (chats, conversations, texts), chat.jsonl (chats alone, for learning the
// replies) and eval.jsonl (1000 further chats of the training grammar). Throws UsageError when one
// of them exists.
CorpusCounts write_corpus(const std::filesystem::path& directory, const CorpusOptions& options,
                          ThreadPool& pool);

// What the fine-tuned model shall say of itself.
struct IdentityTexts {
  std::string zh = "我是 F# 之神", en = "I am the god of F#";
};

struct IdentitySetOptions {
  uint64_t seed = 1;
  int64_t samples = 2000;
  double identity_share = 0.3, disambiguation_share = 0.3;  // the rest is retention
  IdentityTexts identity;
  double conversation_share = 0;  // of mini/conversations.h; before retention
};
// Lines of JSONL (or TSV: single turns only, no conversations), training phrasings alone.
std::string make_identity_set(const IdentitySetOptions& options, bool tsv);

}  // namespace nibble
