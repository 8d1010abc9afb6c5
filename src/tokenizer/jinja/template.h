// SPDX-License-Identifier: MIT
// A chat template in Jinja, as models' makers write them: the language of Python's jinja2 in the
// environment of Hugging Face's transformers (sandboxed, trim_blocks, lstrip_blocks, loop controls,
// tojson without ASCII escapes, raise_exception, strftime_now, {% generation %}).
// docs/templates.md.
#pragma once
#include <ctime>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"
#include "tokenizer/jinja/budget.h"
#include "tokenizer/jinja/text.h"
#include "tokenizer/jinja/value.h"

namespace nibble::jinja {

struct Tree;

// A template that cannot be read (a file error), or that fails or refuses (a usage error): what()
// is "qwen.jinja:12:5: TypeError: ...".
class TemplateError : public Error {
 public:
  TemplateError(ExitCode code, const std::string& name, const Raised& why);
  const std::string& kind() const { return kind_; }      // "TypeError", as Python names it
  const std::string& reason() const { return reason_; }  // the words behind it
  Position at() const { return at_; }

 private:
  std::string kind_, reason_;
  Position at_;
};

struct RenderOptions {
  Limits limits;
  std::tm now = {};  // what strftime_now shows
};

// The result: `runs` say where each stretch of the text came from.
struct Rendering {
  std::string text;
  std::vector<Run> runs;
};

// Immutable after compile(), cheap to copy; may be rendered from many threads at once.
class Template {
 public:
  // `name` is for messages. Throws TemplateError.
  static Template compile(std::string_view source, std::string name);

  using Variables = std::vector<std::pair<std::string, Value>>;
  Rendering render(const Variables& variables, const RenderOptions& options = {}) const;
  // Whether the template says this name anywhere.
  bool mentions(std::string_view variable) const;
  const std::string& name() const { return name_; }
  const std::string& source() const { return *source_; }

 private:
  std::shared_ptr<const Tree> tree_;
  std::shared_ptr<const std::string> source_;
  std::string name_;
};

// The members of a JSON object as variables. What a message says is from outside; the model's own
// token strings (bos_token and the like) and the names of known roles are not, because templates
// make control tokens of them.
Template::Variables variables_from_json(const nlohmann::ordered_json& object,
                                        const Limits& limits = {});

std::tm time_now();
// "2026-11-16" or "2026-11-16T12:30:00". Throws UsageError.
std::tm parse_time(std::string_view text);

}  // namespace nibble::jinja
