// SPDX-License-Identifier: MIT
#include "serve/api/chat_request.h"

#include "core/error.h"
#include "core/json.h"
#include "serve/api/api_error.h"
#include "serve/api/reply_form.h"

namespace nibble {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMostTopLogprobs = 20;

// The text of a content that comes in parts.
std::string text_of_parts(const Json& parts, const std::string& where) {
  std::string text;
  for (size_t i = 0; i < parts.size(); ++i) {
    BodyFields part(parts[i], fmt::format("{}[{}].", where, i));
    const auto type = part.text("type");
    if (type != "text" && type != "refusal") {
      throw_invalid(where, "'{}' has a part of type '{}', and this model reads text only", where,
                    type.value_or(""));
    }
    text += part.text(*type == "text" ? "text" : "refusal").value_or("");
    part.finish();
  }
  return text;
}

Message read_message(const Json& j, size_t index) {
  const std::string where = fmt::format("messages[{}]", index);
  BodyFields f(j, where + ".");
  Json plain = j;
  if (f.text("role") == "developer") plain["role"] = "system";
  if (const Json* const content = f.any("content"); content && content->is_array()) {
    plain["content"] = text_of_parts(*content, where + ".content");
  }
  for (const char* name : {"tool_calls", "reasoning_content"}) f.any(name);
  // What clients send back of a reply, or say beside it, and no template shows.
  for (const char* name : {"name", "tool_call_id", "refusal", "annotations"}) f.pass(name);
  f.refuse("audio", "this model reads text only");
  f.refuse("function_call", "'tool_calls' is its successor");
  f.finish();
  try {
    return message_from_json(plain);
  } catch (const UsageError& e) {
    throw_invalid(where, "{}: {}", where, e.what());
  }
}

void read_tools(BodyFields& f, ChatRequest& r) {
  const Json* const j = f.any("tools");
  if (j && !j->is_array()) throw_invalid("tools", "'tools' must be an array");
  for (size_t i = 0; j && i < j->size(); ++i) {
    BodyFields tool((*j)[i], fmt::format("tools[{}].", i));
    if (tool.text("type") != "function")
      throw_invalid("tools", "tools[{}].type must be 'function'", i);
    const Json* const function = tool.any("function");
    if (!function || !function->is_object() || !function->contains("name") ||
        !(*function)["name"].is_string()) {
      throw_invalid("tools", "tools[{}].function must be an object with a 'name'", i);
    }
    tool.finish();
    r.tools.push_back((*j)[i].dump());
  }
  const Json* const choice = f.any("tool_choice");
  if (!choice || *choice == "auto") return;
  if (*choice == "none") {
    r.tools.clear();
  } else if (j) {
    r.form = forced_call_form(*j, *choice);
  } else {
    throw_invalid("tool_choice", "'tool_choice' needs 'tools'");
  }
}

void read_template_fields(BodyFields& f, ChatRequest& r) {
  const Json* const kwargs = f.any("chat_template_kwargs");
  if (!kwargs) return;
  BodyFields k(*kwargs, "chat_template_kwargs.");
  if (const auto thinking = k.boolean("enable_thinking")) r.thinking = thinking;
  k.finish();
}

void read_response_format(BodyFields& f, ChatRequest& r) {
  const Json* const format = f.any("response_format");
  if (!format) return;
  auto form = response_form(*format);
  if (form && r.form)
    throw_invalid("response_format", "'response_format' beside a 'tool_choice' that forces a call");
  if (form) r.form = std::move(form);
}

}  // namespace

std::vector<Message> read_messages(const Json& list) {
  if (!list.is_array() || list.empty())
    throw_invalid("messages", "'messages' must be an array with at least one message");
  std::vector<Message> out;
  for (size_t i = 0; i < list.size(); ++i) out.push_back(read_message(list[i], i));
  return out;
}

ChatRequest read_chat_request(const Json& body, const ServedModel& model) {
  BodyFields f(body);
  ChatRequest r;
  r.thinking = model.thinking;
  const Json* const messages = f.any("messages");
  if (!messages) throw_invalid("messages", "'messages' is missing");
  r.messages = read_messages(*messages);
  r.common = read_common_fields(f, model);
  const auto old_name = f.integer("max_tokens", 1, INT32_MAX);
  const auto new_name = f.integer("max_completion_tokens", 1, INT32_MAX);
  if (old_name && new_name && *old_name != *new_name) {
    throw_invalid("max_tokens", "'max_tokens' is {} and 'max_completion_tokens' {}: give one",
                  *old_name, *new_name);
  }
  r.common.reply.max_tokens = new_name.value_or(old_name.value_or(model.context));
  const bool logprobs = f.boolean("logprobs").value_or(false);
  const auto top = f.integer("top_logprobs", 0, kMostTopLogprobs);
  if (top && !logprobs) throw_invalid("top_logprobs", "'top_logprobs' needs 'logprobs': true");
  if (logprobs) r.top_logprobs = int(top.value_or(0));
  read_tools(f, r);
  f.boolean("parallel_tool_calls");
  read_template_fields(f, r);
  read_response_format(f, r);
  if (r.form && r.common.reply.stop_ids.empty())
    throw_invalid("ignore_eos", "a reply of a given form must be able to end");
  if (const Json* const m = f.any("modalities"); m && *m != Json::array({"text"}))
    throw_invalid("modalities", "this model writes text only");
  if (f.boolean("store").value_or(false))
    throw_invalid("store", "nothing is stored by this server");
  f.refuse("audio", "this model writes text only");
  f.refuse("functions", "'tools' is its successor");
  f.refuse("function_call", "'tool_choice' is its successor");
  f.refuse("prediction", "there is no use for it");
  f.refuse("web_search_options", "the model searches nothing");
  f.refuse("reasoning_effort",
           "\"chat_template_kwargs\": {\"enable_thinking\": ...} is what there is");
  f.refuse("verbosity", "the model knows none");
  f.finish();
  return r;
}

std::vector<int32_t> ChatRequest::prompt(const ServedModel& model) const {
  return encode_chat(model.require_tokenizer(), messages, tools,
                     {model.style, GenerationPrompt::yes, thinking}, model.content);
}

}  // namespace nibble
