// SPDX-License-Identifier: MIT
// nibble generate: one prompt, one reply.
#include <ostream>

#include "apps/command.h"
#include "apps/options/generate_options.h"
#include "apps/options/runtime_options.h"
#include "apps/options/template_options.h"
#include "apps/terminal/standard_input.h"
#include "core/file.h"
#include "core/log.h"
#include "generate/reply_report.h"
#include "generate/stop_text.h"
#include "guard/watchdog.h"
#include "runtime/model_template.h"
#include "runtime/runtime.h"
#include "tokenizer/chat_template.h"
#include "tokenizer/stream_decoder.h"

namespace nibble {
namespace {

struct GenerateCommandOptions {
  RuntimeOptions runtime;
  std::optional<std::string> prompt;
  std::filesystem::path prompt_file;
  std::optional<std::vector<int32_t>> input_ids;
  std::string system;
  TemplateFlags written;
  bool raw = false, plain = false, echo = false, print_ids = false, timing = false, stream = true;
  GenerateFlags generate;
  EscapesFlag escapes;
  CacheOptions cache;

  void visit_fields(Fields& f) {
    nibble::visit_fields(runtime, f);
    f.section("Prompt");
    f.add(prompt, {.flag = "--prompt",
                   .help = "The prompt; without any, it is read from standard input",
                   .value = "TEXT",
                   .aliases = {"-p"},
                   .common = true});
    f.add(prompt_file,
          {.flag = "--prompt-file", .help = "Read the prompt from a file", .value = "FILE"});
    f.add(input_ids, {.flag = "--input-ids",
                      .help = "The prompt as token ids; no tokenizer is needed, and without one "
                              "the reply is ids, too",
                      .value = "IDS"});
    f.add(system, {.flag = "--system",
                   .help = "A system message before the prompt",
                   .value = "TEXT",
                   .common = true});
    f.add(raw,
          {.flag = "--raw", .help = "Continue the prompt as it is, without the chat template"});
    f.add(plain, {.flag = "--plain",
                  .help = "With --raw: strings like <|im_end|> in the prompt are ordinary text"});
    written.visit_fields(f);
    generate.visit_fields(f);
    nibble::visit_fields(cache, f);
    f.section("Output");
    f.add(stream, {.flag = "--stream", .help = "Print text as it comes"});
    f.add(echo, {.flag = "--echo", .help = "Print the rendered prompt first"});
    f.add(print_ids, {.flag = "--print-ids", .help = "Print the generated ids on the last line"});
    f.add(timing, {.flag = "--timing", .help = "Print times and tokens per second"});
    escapes.visit_fields(f);
  }
};

std::string prompt_text(const GenerateCommandOptions& o, Io& io) {
  if (o.prompt) return *o.prompt;
  if (!o.prompt_file.empty()) return read_text_file(o.prompt_file);
  return read_all(io.in);
}

std::vector<int32_t> prompt_ids(const GenerateCommandOptions& o, const Runtime& rt, Io& io) {
  if (o.input_ids) return *o.input_ids;
  const Tokenizer& tokenizer = rt.require_tokenizer();
  const std::string text = prompt_text(o, io);
  if (o.raw) {
    return tokenizer.encode(text, o.plain ? SpecialTokens::plain : SpecialTokens::parse);
  }
  std::vector<Message> messages;
  if (!o.system.empty()) messages.push_back({Role::system, o.system});
  messages.push_back({Role::user, text});
  const ChatOptions chat{choose_template(o.written.chat_template, rt.paths.tokenizer),
                         GenerationPrompt::yes, o.written.enable_thinking()};
  return encode_chat(tokenizer, messages, o.written.tools(), chat, o.written.content());
}

void check_prompt_flags(const GenerateCommandOptions& o) {
  if (int(o.prompt.has_value()) + int(!o.prompt_file.empty()) + int(o.input_ids.has_value()) > 1) {
    throw_usage("give the prompt once: --prompt, --prompt-file or --input-ids");
  }
  const bool templated = !o.input_ids && !o.raw;
  if (!templated && (!o.system.empty() || o.written.used())) {
    throw_usage(
        "--system, --template, --thinking, --tools and --parse-content are about the chat "
        "template, "
        "which --input-ids and --raw leave out");
  }
  if (templated && o.plain) {
    throw_usage(
        "--plain is about --raw: in a conversation strings like <|im_end|> are text already; "
        "--parse-content asks for the other");
  }
  if (o.input_ids && (o.raw || o.plain)) {
    throw_usage("--raw and --plain say how text is encoded, but --input-ids gives no text");
  }
}

ExitCode run_generate(const GenerateCommandOptions& o, Io& io) {
  check_prompt_flags(o);
  const Runtime rt = open_runtime(
      o.runtime, o.input_ids ? TokenizerNeed::optional : TokenizerNeed::required, &o.cache);
  const std::vector<int32_t> prompt = prompt_ids(o, rt, io);
  Engine engine(*rt.backend, rt.model, rt.engine_options(o.cache));
  log_sampling(o.generate.sample, rt.generation);

  o.escapes.apply(io.out);
  std::optional<StreamDecoder> decoder;
  if (rt.tokenizer) decoder.emplace(*rt.tokenizer, DecodeSpecial::skip);
  if (o.echo) io.out << o.escapes.shown(rt.require_tokenizer().decode(prompt));
  if (!o.generate.stop.empty()) rt.require_tokenizer();
  StopText stop(o.generate.stop);
  std::string text;
  const auto emit = [&](const std::string& piece) {
    text += piece;
    if (o.stream) io.out << o.escapes.shown(piece) << std::flush;
  };
  const Watchdog watchdog(Watchdog::hard_limit(o.generate.timeout_ms));
  GenerateResult r = generate(engine, prompt, o.generate.options(rt, o.cache), [&](int32_t id) {
    if (decoder) emit(stop.push(decoder->push(id)));
    return !stop.stopped() && io.out;  // a reader that left needs no more
  });
  if (decoder) {
    emit(stop.push(decoder->flush()));
    emit(stop.flush());
    if (stop.stopped()) r.reason = FinishReason::stop;
    if (!o.stream) io.out << o.escapes.shown(text);
    io.out << "\n";
  }
  const bool ids_are_the_reply = !decoder && !o.print_ids;
  if (ids_are_the_reply) {
    log_info("there is no tokenizer: the reply is given as ids");
    io.out << ids_text(r.ids) << "\n";
  }
  if (o.timing) io.out << timing_line(r.timing) << "\n";
  const ExitCode code = report_finish(r.reason);
  report_cut(r.reason, o.generate.max_tokens, engine.options().context,
             rt.model.config.max_positions);
  log_debug("finish reason: {}", finish_reason_name(r.reason));
  if (o.print_ids) io.out << ids_text(r.ids) << "\n";
  return code;
}

}  // namespace

Command generate_command() {
  return make_command<GenerateCommandOptions>(
      "generate", "Answer one prompt",
      "Renders the prompt with the chat template (unless --raw or --input-ids), generates a reply "
      "and prints it.",
      run_generate);
}

}  // namespace nibble
