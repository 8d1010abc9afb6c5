// SPDX-License-Identifier: MIT
#include "serve/api/reply_form.h"

#include "core/error.h"
#include "core/json.h"
#include "grammar/json_grammar.h"
#include "serve/api/api_error.h"
#include "serve/api/body_fields.h"

namespace nibble {
namespace {

using Json = nlohmann::ordered_json;

class GrammarRule final : public TokenRule {
 public:
  explicit GrammarRule(TokenMasks masks) : masks_(std::move(masks)) {}
  void mask(std::span<float> logits) override { masks_.apply(logits); }
  void take(int32_t id) override { masks_.take(id); }

 private:
  TokenMasks masks_;
};

}  // namespace

std::optional<ByteGrammar> response_form(const Json& format) {
  BodyFields f(format, "response_format.");
  const auto type = f.text("type");
  const Json* const described = f.any("json_schema");
  f.finish();
  if (type == "json_schema") {
    if (!described) throw_invalid("response_format", "'response_format.json_schema' is missing");
    BodyFields d(*described, "response_format.json_schema.");
    d.text("name");
    d.text("description");
    d.boolean("strict");  // it is always kept to
    const Json* const schema = d.any("schema");
    d.finish();
    if (!schema)
      throw_invalid("response_format", "'response_format.json_schema.schema' is missing");
    try {
      return json_schema_grammar(*schema);
    } catch (const UsageError& e) {
      throw_invalid("response_format", "response_format.json_schema.schema: {}", e.what());
    }
  }
  if (described) throw_invalid("response_format", "'json_schema' needs 'type': 'json_schema'");
  if (type == "json_object") return any_json_object();
  if (type == "text") return std::nullopt;
  throw_invalid("response_format",
                "'response_format.type' must be text, json_object or json_schema");
}

ByteGrammar forced_call_form(const Json& tools, const Json& choice) {
  std::optional<std::string> wanted;
  if (choice.is_object()) {
    BodyFields c(choice, "tool_choice.");
    const auto type = c.text("type");
    const Json* const function = c.any("function");
    c.finish();
    if (type != "function" || !function) {
      throw_invalid("tool_choice",
                    "'tool_choice' must be none, auto, required or {{\"type\": \"function\", "
                    "\"function\": {{\"name\": ...}}}}");
    }
    BodyFields f(*function, "tool_choice.function.");
    wanted = f.text("name");
    f.finish();
    if (!wanted) throw_invalid("tool_choice", "'tool_choice.function.name' is missing");
  } else if (choice != "required") {
    throw_invalid("tool_choice", "'tool_choice' must be none, auto, required or an object");
  }
  static const Json kAny = {{"type", "object"}};
  std::vector<SchemaBetween> calls;
  for (const Json& tool : tools) {
    const Json& function = tool.at("function");
    const auto& name = function.at("name").get_ref<const std::string&>();
    if (wanted && name != *wanted) continue;
    const auto parameters = function.find("parameters");
    calls.push_back({"<tool_call>\n{\"name\": " + Json(name).dump() + ", \"arguments\": ",
                     parameters == function.end() || parameters->is_null() ? &kAny : &*parameters,
                     "}\n</tool_call>"});
  }
  if (calls.empty()) throw_invalid("tool_choice", "there is no tool '{}'", wanted.value_or(""));
  try {
    return one_of_schemas(calls);
  } catch (const UsageError& e) {
    throw_invalid("tools", "the parameters of a tool that may be forced: {}", e.what());
  }
}

std::unique_ptr<TokenRule> ReplyForms::rule(const ByteGrammar& form, const Tokenizer& tokenizer,
                                            const std::vector<int32_t>& stop_ids) {
  {
    const std::lock_guard lock(mutex_);
    if (!words_) words_ = std::make_shared<SortedVocabulary>(tokenizer);
  }
  return std::make_unique<GrammarRule>(TokenMasks(words_, form, stop_ids));
}

}  // namespace nibble
