// SPDX-License-Identifier: MIT
// nibble render: what a chat template makes of conversations.
#include <fstream>
#include <ostream>

#include "apps/command.h"
#include "core/file.h"
#include "core/json.h"
#include "core/log.h"
#include "runtime/model_paths.h"
#include "runtime/model_template.h"
#include "runtime/output_files.h"
#include "tokenizer/jinja/template.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

struct RenderCommandOptions {
  ModelOptions model;
  fs::path file, jsonl, out;
  std::string now;
  bool force = false;

  void visit_fields(Fields& f) {
    f.add(file, {.flag = "--template", .help = "A chat template", .value = "FILE"});
    f.add(model.model, {.flag = "--model",
                        .help = "A model whose own chat template to use",
                        .value = "DIR|FILE",
                        .aliases = {"--weight", "--input-dat", "--model-dir"}});
    f.add(jsonl, {.flag = "--jsonl",
                  .help = "Lines {\"variables\": {...}}, each answered with {\"text\": ...} or "
                          "{\"error\": ...}",
                  .value = "FILE"});
    f.add(now, {.flag = "--now",
                .help = "The day (or time) strftime_now shows; by default the present",
                .value = "YYYY-MM-DD"});
    f.add(out,
          {.flag = "--out", .help = "Where to write; by default standard output", .value = "FILE"});
    f.add(force, {.flag = "--force", .help = "Replace an existing --out"});
  }
};

Json variables_of(const std::string& line, const std::string& where) {
  Json j;
  try {
    j = parse_json<Json>(line);
  } catch (const Json::exception& e) {
    throw_format("{}: not valid JSON: {}", where, e.what());
  }
  if (!j.is_object() || !j.contains("variables") || !j.at("variables").is_object()) {
    throw_format("{}: expected an object with an object \"variables\"", where);
  }
  return std::move(j.at("variables"));
}

jinja::Template chosen_template(const RenderCommandOptions& o, Json& model_tokens) {
  if (o.file.empty() == o.model.model.empty()) {
    throw_usage("render takes either --template FILE or --model M");
  }
  if (!o.file.empty()) return jinja::Template::compile(read_text_file(o.file), o.file.string());
  const ModelTemplate found = find_model_template(resolve_tokenizer(o.model));
  if (found.source.empty()) {
    throw_format("{}: the model has no chat template; name one with --template",
                 o.model.model.string());
  }
  for (const auto& [name, text] : found.token_strings) model_tokens[name] = text;
  return jinja::Template::compile(found.source, found.from.string());
}

ExitCode run_render(const RenderCommandOptions& o, Io& io) {
  if (o.jsonl.empty()) throw_usage("render needs --jsonl FILE");
  if (o.force && o.out.empty()) throw_usage("--force is about --out, which is not given");
  jinja::RenderOptions how;
  how.now = o.now.empty() ? jinja::time_now() : jinja::parse_time(o.now);
  Json tokens = Json::object();
  const jinja::Template chosen = chosen_template(o, tokens);

  const InputFile regular(o.jsonl);  // a pipe would keep us waiting, a directory reads as empty
  std::ifstream in(o.jsonl, std::ios::binary);
  if (!in) throw_format("{}: cannot be opened", o.jsonl.string());
  std::unique_ptr<AtomicFile> file;
  if (!o.out.empty()) {
    const Overwrite overwrite = o.force ? Overwrite::allow : Overwrite::refuse;
    check_output_file(o.out, overwrite, {o.model.model, {}, {}}, {o.file, o.jsonl});
    file = std::make_unique<AtomicFile>(o.out, existing_file(overwrite));
  }
  std::string line;
  for (int64_t n = 1; std::getline(in, line); ++n) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::string where = fmt::format("{}:{}", o.jsonl.string(), n);
    Json variables = variables_of(line, where);
    for (const auto& [name, text] : tokens.items()) {
      if (!variables.contains(name)) variables[name] = text;
    }
    Json answer;
    try {
      answer["text"] = chosen.render(jinja::variables_from_json(variables), how).text;
    } catch (const jinja::TemplateError& e) {
      log_debug("{}: {}", where, e.what());
      answer["error"] = e.kind() + ": " + e.reason();
    }
    const std::string text = answer.dump() + "\n";
    if (file) {
      file->write(text);
    } else {
      io.out << text;
    }
  }
  if (in.bad()) throw_format("{}: reading failed", o.jsonl.string());
  if (file) file->commit();
  return ExitCode::ok;
}

}  // namespace

Command render_command() {
  return make_command<RenderCommandOptions>(
      "render", "What a chat template makes of conversations",
      "Each line of --jsonl gives the variables of one rendering: messages, tools,\n"
      "add_generation_prompt and whatever else the template asks for. With --model the strings\n"
      "of its special tokens (bos_token, eos_token) are there already. A template that fails\n"
      "answers {\"error\": ...} in the words of Python's jinja2; where it failed is logged with\n"
      "--verbose.",
      run_render);
}

}  // namespace nibble
