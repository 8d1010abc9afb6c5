// SPDX-License-Identifier: MIT
// What nibble generate can be asked, and its two ways: one prompt, many at once.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "apps/command.h"
#include "apps/options/generate_options.h"
#include "apps/options/runtime_options.h"
#include "apps/options/template_options.h"

namespace nibble {

struct GenerateCommandOptions {
  RuntimeOptions runtime;
  std::optional<std::string> prompt;
  std::filesystem::path prompt_file, messages, batch, out;
  std::optional<std::vector<int32_t>> input_ids;
  std::string system;
  TemplateFlags written;
  bool raw = false, plain = false, echo = false, print_ids = false, timing = false, stream = true;
  bool json = false, force = false, strict_data = false;
  GenerateFlags generate;
  EscapesFlag escapes;
  CacheOptions cache;

  void visit_fields(Fields& f);
};

// --batch: all prompts of a file. Nothing is computed before every line is known to be good.
ExitCode run_generate_batch(const GenerateCommandOptions& o, Io& io);

// A reply as an object of JSON on one line. `text`: none without a tokenizer.
struct ReplyFacts {
  std::string id;  // JSON; empty: none
  std::optional<std::string> text;
  std::vector<int32_t> ids;
  FinishReason reason = FinishReason::length;
  size_t prompt_tokens = 0;
  std::optional<GenerateTiming> timing;
};
std::string reply_json_line(const ReplyFacts& reply);

}  // namespace nibble
