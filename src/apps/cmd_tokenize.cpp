// SPDX-License-Identifier: MIT
// nibble tokenize: text to ids and back.
#include <fmt/ranges.h>

#include <fstream>
#include <istream>
#include <iterator>
#include <ostream>

#include "apps/command.h"
#include "apps/terminal/standard_input.h"
#include "core/file.h"
#include "core/json.h"
#include "core/log.h"
#include "runtime/model_paths.h"
#include "runtime/model_texts.h"
#include "runtime/output_files.h"
#include "tokenizer/tokenizer.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

struct TokenizeOptions {
  ModelOptions model;
  std::optional<std::string> text;
  fs::path file, jsonl, out;
  std::optional<std::vector<int32_t>> decode;
  bool plain = false, force = false;

  void visit_fields(Fields& f) {
    f.add(model.tokenizer, {.flag = "--tokenizer",
                            .help = "tokenizer.json, or the directory it is in",
                            .value = "FILE"});
    f.add(model.model, {.flag = "--model",
                        .help = "A model whose tokenizer.json to use",
                        .value = "DIR|FILE",
                        .aliases = {"--weight", "--input-dat", "--model-dir"}});
    f.add(text, {.flag = "--text", .help = "The text to encode"});
    f.add(file, {.flag = "--file", .help = "A file to encode as one text", .value = "FILE"});
    f.add(jsonl, {.flag = "--jsonl",
                  .help = "Lines {\"text\": ...}, each answered with "
                          "{\"ids\": [...], \"decoded\": ...}",
                  .value = "FILE"});
    f.add(decode, {.flag = "--decode", .help = "Ids to turn into text"});
    f.add(plain,
          {.flag = "--plain", .help = "Strings of special tokens in the text are ordinary text"});
    f.add(out,
          {.flag = "--out", .help = "Where to write; by default standard output", .value = "FILE"});
    f.add(force, {.flag = "--force", .help = "Replace an existing --out"});
  }
};

std::vector<int32_t> encode_line(const Tokenizer& tokenizer, const std::string& line,
                                 const std::string& where, SpecialTokens how) {
  json j;
  try {
    j = parse_json<json>(line);
  } catch (const json::exception& e) {
    throw_format("{}: not valid JSON: {}", where, e.what());
  }
  if (!j.is_object() || !j.contains("text") || !j.at("text").is_string()) {
    throw_format("{}: expected an object with a string \"text\"", where);
  }
  return tokenizer.encode(j.at("text").get_ref<const std::string&>(), how);
}

template <class Emit>
void encode_jsonl(const Tokenizer& tokenizer, const fs::path& file, SpecialTokens how,
                  Emit&& emit) {
  const InputFile regular(file);  // a pipe would keep us waiting, a directory reads as empty
  std::ifstream in(file, std::ios::binary);
  if (!in) throw_format("{}: cannot be opened", file.string());
  std::string line;
  for (int64_t n = 1; std::getline(in, line); ++n) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const auto ids = encode_line(tokenizer, line, fmt::format("{}:{}", file.string(), n), how);
    // Replacement characters stand for bytes a token cuts apart: decoded text is always UTF-8.
    emit(json{{"ids", ids}, {"decoded", tokenizer.decode(ids)}}.dump() + "\n");
  }
  if (in.bad()) throw_format("{}: reading failed", file.string());
}

void check_ids(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  for (const int32_t id : ids) {
    if (id < 0 || id >= tokenizer.vocab_size()) {
      throw_usage("--decode: the tokenizer has no token {}; its ids are 0..{}", id,
                  tokenizer.vocab_size() - 1);
    }
  }
}

ExitCode run_tokenize(const TokenizeOptions& o, Io& io) {
  const int inputs = int(o.text.has_value()) + int(!o.file.empty()) + int(!o.jsonl.empty()) +
                     int(o.decode.has_value());
  if (inputs > 1) throw_usage("--text, --file, --jsonl and --decode exclude each other");
  if (o.decode && o.plain) throw_usage("--plain is about encoding; it has no part in --decode");
  if (o.force && o.out.empty()) throw_usage("--force is about --out, which is not given");
  const SpecialTokens how = o.plain ? SpecialTokens::plain : SpecialTokens::parse;
  const fs::path tokenizer_file = resolve_tokenizer(o.model);
  std::unique_ptr<AtomicFile> file;
  if (!o.out.empty()) {
    const Overwrite overwrite = o.force ? Overwrite::allow : Overwrite::refuse;
    check_output_file(o.out, overwrite, {o.model.model, {}, tokenizer_file}, {o.file, o.jsonl});
    file = std::make_unique<AtomicFile>(o.out, existing_file(overwrite));
  }
  const auto emit = [&](const std::string& text) {
    if (file) {
      file->write(text);
    } else {
      io.out << text;
    }
  };

  const Tokenizer tokenizer = load_tokenizer(tokenizer_file);
  if (o.decode) {
    check_ids(tokenizer, *o.decode);
    emit(tokenizer.decode(*o.decode) + "\n");
  } else if (!o.jsonl.empty()) {
    encode_jsonl(tokenizer, o.jsonl, how, emit);
  } else {
    const std::string text = o.text            ? *o.text
                             : !o.file.empty() ? read_text_file(o.file)
                                               : read_all(io.in);
    const std::vector<int32_t> ids = tokenizer.encode(text, how);
    log_debug("{} bytes, {} tokens", text.size(), ids.size());
    emit(fmt::format("{}\n", fmt::join(ids, ",")));
  }
  if (file) file->commit();
  return ExitCode::ok;
}

}  // namespace

Command tokenize_command() {
  return make_command<TokenizeOptions>(
      "tokenize", "Text to token ids and back",
      "Without --text, --file, --jsonl or --decode the text is read from standard input. Ids are\n"
      "printed on one line, separated by commas, as --decode takes them.",
      run_tokenize);
}

}  // namespace nibble
