// SPDX-License-Identifier: MIT
// generate --batch: the prompts of a file, as many at once as fit.
#include <algorithm>
#include <ostream>
#include <set>

#include "apps/generate/generate_command.h"
#include "apps/generate/prompt_files.h"
#include "core/file.h"
#include "core/json.h"
#include "core/log.h"
#include "core/progress.h"
#include "generate/batch_generate.h"
#include "generate/reply_report.h"
#include "generate/stop_text.h"
#include "runtime/model_template.h"
#include "runtime/output_files.h"
#include "runtime/replicas.h"
#include "tokenizer/stream_decoder.h"

namespace nibble {
namespace {

constexpr int64_t kMostAtOnce = 64;
constexpr size_t kBatchCacheBytes = size_t(1) << 30;

std::vector<int32_t> batch_ids(const GenerateCommandOptions& o, const Runtime& rt,
                               const ChatOptions& chat, const AskedPrompt& a) {
  const Tokenizer& tokenizer = rt.require_tokenizer();
  const std::string where = fmt::format("{}:{}", o.batch.string(), a.line);
  if (o.raw) {
    const bool question = a.messages.size() == 1 && a.messages[0].role == Role::user;
    if (!a.messages.empty() && !question) {
      throw_format("{}: a conversation needs its template, which --raw leaves out", where);
    }
    return tokenizer.encode(question ? a.messages[0].content : a.text,
                            o.plain ? SpecialTokens::plain : SpecialTokens::parse);
  }
  if (a.messages.empty()) {
    throw_format("{}: a \"text\" is continued with --raw; a question is a \"prompt\"", where);
  }
  std::vector<Message> messages;
  if (!o.system.empty() && a.messages[0].role != Role::system) {
    messages.push_back({Role::system, o.system});
  }
  messages.insert(messages.end(), a.messages.begin(), a.messages.end());
  return encode_chat(tokenizer, messages, a.tools.empty() ? o.written.tools() : a.tools, chat,
                     o.written.content());
}

std::vector<BatchPrompt> batch_prompts(const GenerateCommandOptions& o, const Runtime& rt,
                                       const std::vector<AskedPrompt>& asked) {
  const ChatOptions chat{choose_template(o.written.chat_template, rt.paths.tokenizer),
                         GenerationPrompt::yes, o.written.enable_thinking()};
  const int64_t most = o.cache.context.value_or(rt.model.config.max_positions);
  std::vector<BatchPrompt> prompts;
  for (const AskedPrompt& a : asked) {
    BatchPrompt p{batch_ids(o, rt, chat, a), o.generate.max_tokens, o.generate.stop_on_repetition};
    if (p.ids.empty()) throw_format("{}:{}: the prompt is empty", o.batch.string(), a.line);
    if (int64_t(p.ids.size()) > most) {
      throw_usage("{}:{}: the prompt has {} tokens, and {} holds {}", o.batch.string(), a.line,
                  p.ids.size(), o.cache.context ? "--context" : "the model", most);
    }
    prompts.push_back(std::move(p));
  }
  return prompts;
}

// As generate shows it: up to a stop text.
ReplyFacts shown_reply(const Tokenizer& tokenizer, const GenerateCommandOptions& o,
                       BatchReply&& reply) {
  StreamDecoder decoder(tokenizer, DecodeSpecial::skip);
  StopText stop(o.generate.stop);
  std::string text;
  size_t taken = 0;
  while (taken < reply.ids.size() && !stop.stopped()) {
    text += stop.push(decoder.push(reply.ids[taken++]));
  }
  text += stop.push(decoder.flush());
  text += stop.flush();
  reply.ids.resize(taken);
  return {"",
          std::move(text),
          std::move(reply.ids),
          stop.stopped() ? FinishReason::stop : reply.reason,
          0,
          {}};
}

}  // namespace

ExitCode run_generate_batch(const GenerateCommandOptions& o, Io& io) {
  std::unique_ptr<AtomicFile> file;
  const ExtraKeys extra = o.strict_data ? ExtraKeys::refuse : ExtraKeys::count;
  const std::vector<AskedPrompt> asked = read_batch_file(o.batch, extra);
  if (!o.out.empty()) {
    const Overwrite overwrite = o.force ? Overwrite::allow : Overwrite::refuse;
    check_output_file(o.out, overwrite, {o.runtime.model.model, {}, {}}, {o.batch});
    file = std::make_unique<AtomicFile>(o.out, existing_file(overwrite));
  }
  const std::vector<Runtime> replicas = open_replicas(o.runtime, TokenizerNeed::required, &o.cache);
  const Runtime& rt = replicas.front();
  const std::vector<BatchPrompt> prompts = batch_prompts(o, rt, asked);
  log_sampling(o.generate.sample, rt.generation);

  int64_t context = 0;
  for (const BatchPrompt& p : prompts) {
    context = std::max(context, int64_t(p.ids.size()) + p.max_tokens);
  }
  context = o.cache.context.value_or(std::min(context, rt.model.config.max_positions));
  EngineOptions engine_options = rt.engine_options(o.cache);
  const size_t each = KvCache::bytes(rt.model.config, context, engine_options.cache);
  const auto fit = int64_t(kBatchCacheBytes / std::max<size_t>(1, each));
  const auto n = int64_t(replicas.size());
  const int64_t sequences = std::clamp<int64_t>((int64_t(prompts.size()) + n - 1) / n, 1,
                                                std::clamp<int64_t>(fit, 1, kMostAtOnce));
  engine_options = rt.engine_options(o.cache, sequences);
  engine_options.context = context;
  std::vector<std::unique_ptr<BatchEngine>> engines;
  std::vector<BatchEngine*> all;
  for (const Runtime& r : replicas) {
    engines.push_back(
        std::make_unique<BatchEngine>(*r.backend, r.model, engine_options, sequences));
    all.push_back(engines.back().get());
  }
  log_info("{} prompts, {} at a time", prompts.size(), sequences * n);

  const GenerateOptions how = o.generate.options(rt, o.cache);
  Progress progress("batch", uint64_t(prompts.size()), "prompts");
  int64_t told = 0;
  std::vector<BatchReply> replies =
      generate_batch(all, prompts, {how.stop_ids, how.sample}, [&](int64_t done) {
        progress.advance(uint64_t(done - told));
        told = done;
        return true;
      });

  ExitCode code = ExitCode::ok;
  std::set<FinishReason> said;
  for (size_t i = 0; i < replies.size(); ++i) {
    ReplyFacts reply = shown_reply(rt.require_tokenizer(), o, std::move(replies[i]));
    reply.id = asked[i].id;
    reply.prompt_tokens = prompts[i].ids.size();
    const std::string line = reply_json_line(reply);
    if (file) {
      file->write(line);
    } else {
      io.out << line;
    }
    if (!said.insert(reply.reason).second) continue;
    if (const ExitCode c = report_finish(reply.reason); c != ExitCode::ok) code = c;
  }
  if (file) file->commit();
  return code;
}

}  // namespace nibble
