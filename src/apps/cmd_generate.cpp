// SPDX-License-Identifier: MIT
// nibble generate: one prompt and its reply; many of them are generate/batch.cpp.
#include <ostream>

#include "apps/generate/generate_command.h"
#include "apps/generate/prompt_files.h"
#include "apps/options/train_options.h"
#include "apps/terminal/standard_input.h"
#include "core/file.h"
#include "core/json.h"
#include "core/log.h"
#include "generate/reply_report.h"
#include "generate/stop_text.h"
#include "guard/watchdog.h"
#include "runtime/model_template.h"
#include "runtime/runtime.h"
#include "tokenizer/chat_template.h"
#include "tokenizer/stream_decoder.h"

namespace nibble {

void GenerateCommandOptions::visit_fields(Fields& f) {
  nibble::visit_fields(runtime, f);
  f.section("Prompt");
  f.add(prompt, {.flag = "--prompt",
                 .help = "The prompt; without any, it is read from standard input",
                 .value = "TEXT",
                 .aliases = {"-p"},
                 .common = true});
  f.add(prompt_file,
        {.flag = "--prompt-file", .help = "Read the prompt from a file", .value = "FILE"});
  f.add(messages, {.flag = "--messages",
                   .help = "Answer a conversation: a JSON file {\"messages\": [...]}, or the array "
                           "alone",
                   .value = "FILE"});
  f.add(input_ids, {.flag = "--input-ids",
                    .help = "The prompt as token ids; no tokenizer is needed, and without one "
                            "the reply is ids, too",
                    .value = "IDS"});
  f.add(system,
        {.flag = "--system",
         .help = "A system message before the prompt; with --batch, of lines that have none",
         .value = "TEXT",
         .common = true});
  f.add(raw, {.flag = "--raw", .help = "Continue the prompt as it is, without the chat template"});
  f.add(plain, {.flag = "--plain",
                .help = "With --raw: strings like <|im_end|> in the prompt are ordinary text"});
  written.visit_fields(f);
  f.section("Many prompts");
  f.add(batch, {.flag = "--batch",
                .help = "Answer every line of a .jsonl (or .json, .csv, .gz) file, as many at once "
                        "as fit: {\"prompt\": ...} or {\"messages\": [...]}, and an \"id\" where "
                        "wanted",
                .value = "FILE"});
  f.add(out, {.flag = "--out",
              .help = "Where the replies of --batch go, a line of JSON each and in the order of "
                      "the prompts; by default standard output",
              .value = "FILE"});
  f.add(force, {.flag = "--force", .help = "Replace an existing --out"});
  f.add(strict_data, {.flag = "--strict-data", .help = kStrictDataHelp});
  generate.visit_fields(f);
  nibble::visit_fields(cache, f);
  f.section("Output");
  f.add(json, {.flag = "--json",
               .help = "Print one line of JSON: text, ids, finish reason, tokens of the prompt, "
                       "timing"});
  f.add(stream, {.flag = "--stream", .help = "Print text as it comes"});
  f.add(echo, {.flag = "--echo", .help = "Print the rendered prompt first"});
  f.add(print_ids, {.flag = "--print-ids", .help = "Print the generated ids on the last line"});
  f.add(timing, {.flag = "--timing", .help = "Print times and tokens per second"});
  escapes.visit_fields(f);
}

std::string reply_json_line(const ReplyFacts& r) {
  using Json = nlohmann::ordered_json;
  Json j = Json::object();
  if (!r.id.empty()) j["id"] = parse_json<Json>(r.id);
  j["text"] = r.text ? Json(*r.text) : Json();
  j["ids"] = r.ids;
  j["finish_reason"] = finish_reason_name(r.reason);
  j["prompt_tokens"] = r.prompt_tokens;
  j["completion_tokens"] = r.ids.size();
  if (r.timing) {
    const GenerateTiming& t = *r.timing;
    const auto rate = [](int64_t n, double s) { return s > 0 ? double(n) / s : 0.0; };
    j["timing"] = {{"prefill_ms", t.prefill_s * 1e3},
                   {"decode_ms", t.decode_s * 1e3},
                   {"prefill_tokens_per_second", rate(t.prompt_tokens, t.prefill_s)},
                   {"decode_tokens_per_second",
                    rate(std::max<int64_t>(0, t.generated_tokens - 1), t.decode_s)}};
  }
  // A reply cut in the middle of a character: replace, do not throw.
  return j.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

namespace {

std::string prompt_text(const GenerateCommandOptions& o, Io& io) {
  if (o.prompt) return *o.prompt;
  if (!o.prompt_file.empty()) return read_text_file(o.prompt_file);
  return read_all(io.in);
}

std::vector<int32_t> prompt_ids(const GenerateCommandOptions& o, const Runtime& rt, Io& io) {
  if (o.input_ids) return *o.input_ids;
  const Tokenizer& tokenizer = rt.require_tokenizer();
  if (!o.messages.empty()) {
    const AskedPrompt asked = read_messages_file(o.messages);
    if (!asked.tools.empty() && !o.written.tools().empty()) {
      throw_usage("{} has tools of its own: leave out --tools", o.messages.string());
    }
    const ChatOptions chat{choose_template(o.written.chat_template, rt.paths.tokenizer),
                           GenerationPrompt::yes, o.written.enable_thinking()};
    return encode_chat(tokenizer, asked.messages,
                       asked.tools.empty() ? o.written.tools() : asked.tools, chat,
                       o.written.content());
  }
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
  if (int(o.prompt.has_value()) + int(!o.prompt_file.empty()) + int(o.input_ids.has_value()) +
          int(!o.messages.empty()) + int(!o.batch.empty()) >
      1) {
    throw_usage(
        "give the prompt once: --prompt, --prompt-file, --messages, --batch or --input-ids");
  }
  if (!o.messages.empty() && (!o.system.empty() || o.raw)) {
    throw_usage(
        "--messages is a whole conversation: its system message stands in the file, and --raw is "
        "about a text");
  }
  if (o.batch.empty() && (!o.out.empty() || o.strict_data)) {
    throw_usage("--out and --strict-data are about --batch, which is not given");
  }
  if (o.force && o.out.empty()) throw_usage("--force is about --out, which is not given");
  const bool json = o.json || !o.batch.empty();
  if (json &&
      (o.echo || o.print_ids || o.timing || o.escapes.choice == EscapesFlag::Choice::visible)) {
    throw_usage(
        "--json and --batch print JSON, which has ids and escapes of its own: leave out --echo, "
        "--print-ids, --timing and --escapes visible");
  }
  if (!o.batch.empty() && (o.generate.timeout_ms > 0 || !o.cache.use_kvc)) {
    throw_usage("--timeout-ms and --use-kvc false are about one reply, and --batch asks for many");
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
  if (!o.batch.empty()) return run_generate_batch(o, io);
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
    if (o.stream && !o.json) io.out << o.escapes.shown(piece) << std::flush;
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
    if (!o.stream && !o.json) io.out << o.escapes.shown(text);
    if (!o.json) io.out << "\n";
  }
  if (o.json) {
    io.out << reply_json_line({"", decoder ? std::optional(text) : std::nullopt, r.ids, r.reason,
                               prompt.size(), r.timing});
  }
  const bool ids_are_the_reply = !decoder && !o.print_ids && !o.json;
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
      "and prints it. With --batch it answers a file of prompts.",
      run_generate);
}

}  // namespace nibble
