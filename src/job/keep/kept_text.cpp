// SPDX-License-Identifier: MIT
#include "job/keep/kept_text.h"

#include <algorithm>

#include "core/error.h"
#include "core/hash.h"
#include "core/log.h"
#include "core/progress.h"
#include "data/records.h"
#include "job/keep/openings.h"
#include "runtime/runtime.h"
#include "train/checkpoint.h"

namespace nibble {
namespace fs = std::filesystem;
namespace {

constexpr int64_t kMostSequences = 64;  // written at once
constexpr size_t kCacheBytes = size_t(1) << 30;
constexpr int64_t kShortest = 8;  // tokens of a text that is worth keeping

uint64_t hash_ids(std::span<const int32_t> ids, uint64_t h) {
  return hash_bytes({reinterpret_cast<const char*>(ids.data()), ids.size_bytes()}, h);
}

}  // namespace

struct KeptWriter::Model {
  nibble::Model weights;
  std::unique_ptr<BatchEngine> engine;
};

// What is to be written: prompts as tokens, and for replies the messages they are.
struct KeptWriter::Job {
  std::vector<std::vector<Message>> messages;
  std::vector<std::vector<int32_t>> prompts;
  std::string how;  // all else that decides the text
};

KeptWriter::KeptWriter(Backend& be, const TeacherWeights& teacher, const Tokenizer& tokenizer,
                       const ChatTemplate& chat, const Setting& setting, fs::path directory)
    : be_(be),
      teacher_(teacher),
      tokenizer_(tokenizer),
      chat_(chat),
      setting_(setting),
      directory_(std::move(directory)) {}

KeptWriter::~KeptWriter() = default;

BatchEngine& KeptWriter::engine() {
  if (model_) return *model_->engine;
  model_ = std::make_unique<Model>();
  model_->weights = load_model(be_, teacher_.config, teacher_.source, teacher_.load);
  const Device::Kind device = be_.traits().device == DeviceKind::cuda ? Device::cuda : Device::cpu;
  EngineOptions o;
  o.compute = setting_.compute;
  o.activations = Activations::none;  // as training computes
  o.cache = default_cache(device, o.activations, o.compute);
  o.context = setting_.window + 1;
  const size_t each = KvCache::bytes(teacher_.config, o.context, o.cache);
  const int64_t fit = int64_t(std::max<size_t>(1, kCacheBytes / each));
  model_->engine =
      std::make_unique<BatchEngine>(be_, model_->weights, o, std::min(kMostSequences, fit));
  return *model_->engine;
}

fs::path KeptWriter::file_of(const Job& job) const {
  uint64_t h = hash_bytes("nibble kept text 1", setting_.seed);
  const LoadOptions& load = teacher_.load;
  const auto recipe = [](std::optional<Recipe> r) { return r ? recipe_name(*r) : "as stored"; };
  h = hash_bytes(
      fmt::format("{} {} {} {} {} {} {}", source_fingerprint(teacher_.source), recipe(load.recipe),
                  recipe(load.head_recipe), scale_rule_name(load.scale_rule),
                  dtype_name(setting_.compute), setting_.window, job.how),
      h);
  for (const auto& ids : job.prompts) h = hash_ids(ids, h);
  return directory_ / fmt::format("kept-{:016x}.jsonl", h);
}

fs::path KeptWriter::write(const KeptSource& source) {
  Job job;
  if (source.kind == KeptKind::self) {
    job.how = fmt::format("{} tokens at temperature 1", source.tokens);
    for (const std::string_view opening : openings()) {
      job.prompts.push_back(tokenizer_.encode(opening, SpecialTokens::plain));
      const size_t most = size_t(std::max<int64_t>(1, setting_.window / 2));  // the rest is its own
      if (job.prompts.back().size() > most) job.prompts.back().resize(most);
    }
  } else {
    job.how = "greedy replies";
    job.messages = kept_prompts(source);
    for (const auto& m : job.messages) {
      job.prompts.push_back(
          encode_chat(tokenizer_, m, {}, {chat_, GenerationPrompt::yes}, ContentTokens::plain));
    }
  }
  const fs::path file = file_of(job);
  std::error_code ec;
  if (fs::is_regular_file(file, ec)) {
    log_info("--keep {}: {} was written before and is used again", source.name, file.string());
    return file;
  }
  write_new_file(file,
                 source.kind == KeptKind::self ? own_text(source, job) : replies(source, job));
  log_info("--keep {}: written to {}", source.name, file.string());
  return file;
}

std::string KeptWriter::replies(const KeptSource& source, const Job& job) {
  std::vector<BatchPrompt> prompts;
  for (size_t i = 0; i < job.prompts.size(); ++i) {
    const int64_t room = setting_.window - int64_t(job.prompts[i].size());
    if (room < 1) {
      throw_usage("{}: prompt {} has {} tokens, the window {}: use a longer --seq-len", source.name,
                  i + 1, job.prompts[i].size(), setting_.window);
    }
    prompts.push_back({job.prompts[i], room, true});
  }
  Progress progress(fmt::format("replies to {}", source.name), prompts.size(), "replies");
  const std::vector<BatchReply> replies = generate_batch(
      engine(), prompts, {stop_ids_of(teacher_.config, &tokenizer_), {}}, [&](int64_t done) {
        progress.update(uint64_t(done));
        return true;
      });
  std::string lines;
  int64_t left_out = 0;
  for (size_t i = 0; i < replies.size(); ++i) {
    const std::string text = tokenizer_.decode(replies[i].ids, DecodeSpecial::skip);
    if (is_unhealthy(replies[i].reason) || trim_text(text).empty()) {
      ++left_out;
      continue;
    }
    std::vector<Message> messages = job.messages[i];
    messages.push_back({Role::assistant, text});
    lines += chat_line(messages);
  }
  if (left_out > 0) {
    log_warning("{}: {} of {} prompts have no reply that could be kept", source.name, left_out,
                replies.size());
  }
  if (lines.empty()) throw_usage("{}: the teacher answers none of the prompts", source.name);
  return lines;
}

// Rounds over the openings, each text drawn with a seed of its own, until there are enough tokens.
std::string KeptWriter::own_text(const KeptSource& source, const Job& job) {
  Progress progress("text of the model's own", uint64_t(source.tokens), "tokens");
  std::string lines;
  int64_t tokens = 0;
  uint64_t drawn = 0;
  while (tokens < source.tokens) {
    // As many as would do if each filled its window, at most a round.
    const int64_t wanted = (source.tokens - tokens + setting_.window - 1) / setting_.window;
    std::vector<BatchPrompt> prompts;
    for (int64_t i = 0; i < std::min(wanted, int64_t(job.prompts.size())); ++i) {
      const auto& opening = job.prompts[size_t((drawn + uint64_t(i)) % job.prompts.size())];
      prompts.push_back({opening, setting_.window + 1 - int64_t(opening.size()), false});
    }
    SampleOptions sample;
    sample.temperature = 1;
    sample.seed = setting_.seed + drawn;
    const int64_t before = tokens;
    const std::vector<BatchReply> texts =
        generate_batch(engine(), prompts, {stop_ids_of(teacher_.config, &tokenizer_), sample}, {});
    for (size_t i = 0; i < texts.size(); ++i) {
      std::vector<int32_t> ids = prompts[i].ids;
      ids.insert(ids.end(), texts[i].ids.begin(), texts[i].ids.end());
      const bool sound = texts[i].reason == FinishReason::stop ||
                         texts[i].reason == FinishReason::length ||
                         texts[i].reason == FinishReason::context_full;
      if (!sound || int64_t(texts[i].ids.size()) < kShortest) continue;
      lines += text_line(tokenizer_.decode(ids, DecodeSpecial::skip));
      tokens += int64_t(ids.size());
    }
    drawn += prompts.size();
    progress.update(uint64_t(std::min(tokens, source.tokens)));
    if (tokens == before && drawn >= 4 * job.prompts.size()) {
      throw_usage("--keep {}: the model writes nothing after {} openings; keep a text file instead",
                  source.name, drawn);
    }
  }
  return lines;
}

}  // namespace nibble
