// SPDX-License-Identifier: MIT
// The API without sockets, on the mini model: what it says is what generate says; fields that are
// wrong, unknown or not supported are refused by name.
#include <gtest/gtest.h>

#include <map>

#include "core/json.h"
#include "serve/mini_service.h"
#include "serve/schedule/token_choice.h"
#include "support/text.h"

namespace nibble::test {
namespace {

using Json = nlohmann::json;

class Api : public testing::Test {
 protected:
  static void SetUpTestSuite() { mini_ = new MiniService; }
  static void TearDownTestSuite() {
    delete mini_;
    mini_ = nullptr;
  }
  static ApiResponse ask(const std::string& path, const std::string& body,
                         const std::string& method = "POST") {
    return mini_->service.answer({method, path, body, {}});
  }
  static Json ok(const std::string& path, const Json& body) {
    const ApiResponse r = ask(path, body.dump());
    EXPECT_EQ(r.status, 200) << r.body;
    return parse_json<Json>(r.body);
  }
  static Json chat(const std::string& user, Json more = Json::object()) {
    more["messages"] = Json::array({{{"role", "user"}, {"content", user}}});
    return ok("/v1/chat/completions", more);
  }
  // Refused with 400 because of `param`; the message.
  static std::string refused(const std::string& path, const Json& body, const std::string& param,
                             int status = 400) {
    const ApiResponse r = ask(path, body.dump());
    EXPECT_EQ(r.status, status) << body.dump() << "\n" << r.body;
    const Json e = parse_json<Json>(r.body).at("error");
    EXPECT_EQ(e.at("param"), param.empty() ? Json() : Json(param)) << r.body;
    EXPECT_TRUE(e.at("type").is_string());
    return e.at("message");
  }
  static std::vector<Json> events(const ApiResponse& r) {
    EXPECT_EQ(r.status, 200) << r.body;
    EXPECT_EQ(r.content_type, "text/event-stream");
    std::string all;
    while (r.next(all)) continue;
    std::vector<Json> out;
    EXPECT_TRUE(all.ends_with("data: [DONE]\n\n")) << all;
    for (size_t at = 0; at < all.size();) {
      const size_t end = all.find("\n\n", at);
      const std::string line = all.substr(at, end - at);
      EXPECT_TRUE(line.starts_with("data: ")) << line;
      if (line != "data: [DONE]") out.push_back(parse_json<Json>(line.substr(6)));
      at = end + 2;
    }
    return out;
  }

  static MiniService* mini_;
};
MiniService* Api::mini_ = nullptr;

TEST_F(Api, ChatSaysWhatGenerateSays) {
  for (const char* question : {"Hello", "Who are you?", "What is 2 + 3?", "你好"}) {
    const Json j = chat(question);
    EXPECT_EQ(j["choices"][0]["message"]["content"], mini_->chat_text(question));
    EXPECT_EQ(j["choices"][0]["finish_reason"], "stop");
    EXPECT_EQ(j["usage"]["prompt_tokens"], mini_->chat_prompt(question).size());
    EXPECT_EQ(j["object"], "chat.completion");
  }
}

TEST_F(Api, StreamsJoinToTheWholeReply) {
  const Json body = {{"messages", {{{"role", "user"}, {"content", "Who are you?"}}}},
                     {"stream", true},
                     {"n", 3},
                     {"stream_options", {{"include_usage", true}}}};
  const auto all = events(ask("/v1/chat/completions", body.dump()));
  std::map<int, std::string> texts;
  std::map<int, int> finished;
  for (const Json& e : all) {
    EXPECT_EQ(e["object"], "chat.completion.chunk");
    EXPECT_EQ(e["id"], all[0]["id"]);
    for (const Json& c : e["choices"]) {
      texts[c["index"]] += c["delta"].value("content", "");
      finished[c["index"]] += c["finish_reason"] == "stop";
    }
  }
  ASSERT_EQ(texts.size(), 3u);
  for (const auto& [i, text] : texts) {
    EXPECT_EQ(text, mini_->chat_text("Who are you?"));
    EXPECT_EQ(finished[i], 1);
  }
  EXPECT_TRUE(all.back()["choices"].empty());
  EXPECT_EQ(all.back()["usage"]["prompt_tokens"], mini_->chat_prompt("Who are you?").size());
}

TEST_F(Api, StopTextsLengthsSeedsAndBiases) {
  const std::string whole = mini_->chat_text("Who are you?");
  const std::string word = whole.substr(whole.find(' ') + 1, 4);
  Json j = chat("Who are you?", {{"stop", {word, "zzz"}}});
  EXPECT_EQ(j["choices"][0]["message"]["content"], whole.substr(0, whole.find(word)));
  EXPECT_EQ(j["choices"][0]["finish_reason"], "stop");
  j = chat("Who are you?", {{"max_tokens", 2}});
  EXPECT_EQ(j["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(j["usage"]["completion_tokens"], 2);
  const Json drawn = {{"temperature", 1.5}, {"seed", 7}, {"n", 4}, {"max_tokens", 20}};
  const Json a = chat("Tell me a story", drawn), b = chat("Tell me a story", drawn);
  EXPECT_EQ(a["choices"], b["choices"]);
  EXPECT_NE(a["choices"][0]["message"], a["choices"][1]["message"]);
  const int32_t id = mini_->runtime.tokenizer->encode(" the")[0];
  j = chat("Hello", {{"logit_bias", {{std::to_string(id), 100}}}, {"max_tokens", 3}});
  EXPECT_EQ(j["choices"][0]["message"]["content"],
            mini_->runtime.tokenizer->decode(std::vector<int32_t>(3, id)));
}

TEST_F(Api, LogprobsOfAChat) {
  const Json j = chat("Hello", {{"logprobs", true}, {"top_logprobs", 2}});
  const Json& content = j["choices"][0]["logprobs"]["content"];
  EXPECT_EQ(content.size(), j["usage"]["completion_tokens"]);
  std::string text;
  for (const Json& t : content) {
    text += t["token"].get<std::string>();
    EXPECT_LE(t["logprob"].get<double>(), 0);
    ASSERT_EQ(t["top_logprobs"].size(), 2u);
    EXPECT_EQ(t["top_logprobs"][0]["token"], t["token"]);  // greedy
  }
  EXPECT_EQ(j["choices"][0]["message"]["content"], text);
}

// What lm-evaluation-harness asks: token ids, echo, logprobs, one token.
TEST_F(Api, CompletionsScorePrompts) {
  const std::string text = "user: Hello there, how are you?";
  const auto ids = mini_->runtime.tokenizer->encode(text);
  const Json j = ok("/v1/completions", {{"model", "mini"},
                                        {"prompt", {ids, ids}},
                                        {"echo", true},
                                        {"logprobs", 1},
                                        {"max_tokens", 1},
                                        {"temperature", 0},
                                        {"seed", 1234}});
  ASSERT_EQ(j["choices"].size(), 2u);
  Engine own(*mini_->runtime.backend, mini_->runtime.model,
             mini_->runtime.engine_options(mini_->cache));
  const std::vector<float> logits = own.extend_all(ids);
  const size_t V = size_t(mini_->runtime.model.config.V);
  for (const Json& c : j["choices"]) {
    const Json& l = c["logprobs"];
    ASSERT_EQ(l["tokens"].size(), ids.size() + 1);
    EXPECT_TRUE(l["token_logprobs"][0].is_null());
    for (size_t i = 1; i < ids.size(); ++i) {
      const TokenFacts want = token_facts(std::span(logits).subspan((i - 1) * V, V), ids[i], 1);
      EXPECT_EQ(l["token_logprobs"][i].get<double>(), want.token.logprob);
      EXPECT_EQ(l["text_offset"][i].get<size_t>(),
                mini_->runtime.tokenizer->decode(std::span(ids).first(i)).size());
    }
    EXPECT_TRUE(c["text"].get<std::string>().starts_with(text));
  }
  const Json only =
      ok("/v1/completions", {{"prompt", text}, {"echo", true}, {"logprobs", 0}, {"max_tokens", 0}});
  EXPECT_EQ(only["choices"][0]["text"], text);
  EXPECT_EQ(only["usage"]["completion_tokens"], 0);
  EXPECT_EQ(only["choices"][0]["logprobs"]["tokens"].size(), ids.size());
}

TEST_F(Api, ContentNeverBecomesAControlToken) {
  const Json j = ok("/tokenize", {{"messages", {{{"role", "user"}, {"content", "<|im_end|>"}}}}});
  const auto end = *mini_->runtime.tokenizer->im_end();
  const auto tokens = j["tokens"].get<std::vector<int32_t>>();
  EXPECT_EQ(std::count(tokens.begin(), tokens.end(), end), 1);  // the template's own
}

TEST_F(Api, BodiesAreNotNestedDeeply) {
  for (const char* path : {"/v1/chat/completions", "/v1/completions", "/tokenize"}) {
    for (const size_t deep : {size_t(70), size_t(200000)}) {
      const std::string field = std::string(path) == "/v1/completions" ? "prompt" : "messages";
      const ApiResponse r =
          ask(path, "{\"" + field + "\": " + std::string(deep, '[') + std::string(deep, ']') + "}");
      EXPECT_EQ(r.status, 400) << path;
      EXPECT_TRUE(contains(r.body, "nested deeper than 64")) << r.body.substr(0, 300);
    }
  }
}

TEST_F(Api, TokensThereAndBack) {
  const Json j = ok("/tokenize", {{"prompt", "Hello 你好"}, {"return_token_strs", true}});
  EXPECT_EQ(j["count"], j["tokens"].size());
  EXPECT_EQ(ok("/detokenize", {{"tokens", j["tokens"]}})["prompt"], "Hello 你好");
  refused("/detokenize", {{"tokens", {-1}}}, "tokens");
  refused("/detokenize", {{"tokens", {1e9}}}, "tokens");
  refused("/detokenize", {{"tokens", {1.5}}}, "tokens");
  refused("/tokenize", Json::object(), "prompt");
}

TEST_F(Api, ContentInPartsAndRolesOfOthers) {
  const Json parts =
      Json::array({{{"type", "text"}, {"text", "Who are"}}, {{"type", "text"}, {"text", " you?"}}});
  const Json j =
      ok("/v1/chat/completions", {{"messages", {{{"role", "user"}, {"content", parts}}}}});
  EXPECT_EQ(j["choices"][0]["message"]["content"], mini_->chat_text("Who are you?"));
  ok("/v1/chat/completions", {{"messages",
                               {{{"role", "developer"}, {"content", "Be brief."}},
                                {{"role", "user"}, {"content", "Hello"}, {"name", "Ann"}},
                                {{"role", "assistant"}, {"content", "Hi"}, {"refusal", nullptr}},
                                {{"role", "user"}, {"content", "Hello"}}}},
                              {"user", "somebody"},
                              {"max_completion_tokens", 3}});
}

// The mini model has never seen JSON: what it writes is the grammar's doing.
TEST_F(Api, RepliesHaveTheFormThatIsAskedFor) {
  const Json schema = parse_json<Json>(R"({"type": "object", "properties":
      {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer"},
       "kind": {"enum": ["cat", "dog"]}}, "required": ["name", "age", "kind"],
      "additionalProperties": false})");
  const Json format = {{"type", "json_schema"},
                       {"json_schema", {{"name", "pet"}, {"strict", true}, {"schema", schema}}}};
  for (const double temperature : {0.0, 1.0, 2.0}) {
    const Json j =
        chat("Who are you?",
             {{"response_format", format}, {"temperature", temperature}, {"seed", 3}, {"n", 3}});
    for (const Json& c : j["choices"]) {
      ASSERT_EQ(c["finish_reason"], "stop") << c;
      const Json pet = parse_json<Json>(c["message"]["content"].get<std::string>());
      EXPECT_EQ(pet.size(), 3u);
      EXPECT_TRUE(pet["name"].is_string() && pet["age"].is_number_integer());
      EXPECT_TRUE(pet["kind"] == "cat" || pet["kind"] == "dog");
    }
  }
  const Json any = chat("Hello", {{"response_format", {{"type", "json_object"}}},
                                  {"temperature", 1},
                                  {"seed", 5},
                                  {"max_tokens", 60}});
  const std::string text = any["choices"][0]["message"]["content"];
  EXPECT_EQ(text[0], '{');
  if (any["choices"][0]["finish_reason"] == "stop") {
    EXPECT_TRUE(parse_json<Json>(text).is_object());
  }
}

TEST_F(Api, CallsCanBeForced) {
  const Json tools = parse_json<Json>(R"([
      {"type": "function", "function": {"name": "now", "description": "The time"}},
      {"type": "function", "function": {"name": "weather", "parameters": {"type": "object",
       "properties": {"city": {"enum": ["Rome", "Oslo"]}}, "required": ["city"],
       "additionalProperties": false}}}])");
  const Json named = {{"type", "function"}, {"function", {{"name", "weather"}}}};
  const Json j = chat("Hello", {{"tools", tools}, {"tool_choice", named}});
  const Json& message = j["choices"][0]["message"];
  ASSERT_EQ(message["tool_calls"].size(), 1u) << j;
  EXPECT_TRUE(message["content"].is_null());
  EXPECT_EQ(message["tool_calls"][0]["function"]["name"], "weather");
  const Json arguments =
      parse_json<Json>(message["tool_calls"][0]["function"]["arguments"].get<std::string>());
  EXPECT_TRUE(arguments["city"] == "Rome" || arguments["city"] == "Oslo");
  EXPECT_EQ(j["choices"][0]["finish_reason"], "tool_calls");

  Json body = {{"messages", {{{"role", "user"}, {"content", "Hello"}}}},
               {"tools", tools},
               {"tool_choice", "required"},
               {"stream", true},
               {"max_tokens", 200}};
  std::string name, reason;
  for (const Json& e : events(ask("/v1/chat/completions", body.dump()))) {
    const Json& c = e["choices"][0];
    if (c["delta"].contains("tool_calls")) {
      EXPECT_EQ(c["delta"]["tool_calls"][0]["index"], 0);
      name = c["delta"]["tool_calls"][0]["function"]["name"];
    }
    if (c["finish_reason"].is_string()) reason = c["finish_reason"];
  }
  if (reason == "tool_calls") {
    EXPECT_TRUE(name == "now" || name == "weather");
  } else {
    EXPECT_EQ(reason, "length");  // "now" may have any arguments, at any length
  }
  const std::string path = "/v1/chat/completions";
  body["stream"] = false;
  body["tool_choice"] = {{"type", "function"}, {"function", {{"name", "x"}}}};
  refused(path, body, "tool_choice");
}

TEST_F(Api, WrongFieldsAreNamed) {
  const std::string path = "/v1/chat/completions";
  const Json good = {{"messages", {{{"role", "user"}, {"content", "Hello"}}}}};
  const auto with = [&](const char* name, Json value) {
    Json j = good;
    j[name] = std::move(value);
    return j;
  };
  EXPECT_TRUE(contains(refused(path, with("foo", 1), "foo"), "Unrecognized"));
  refused(path, with("temperature", 3), "temperature");
  refused(path, with("temperature", "hot"), "temperature");
  refused(path, with("top_p", -0.1), "top_p");
  refused(path, with("n", 0), "n");
  refused(path, with("n", 1.5), "n");
  refused(path, with("max_tokens", 0), "max_tokens");
  refused(path, with("seed", 1e30), "seed");
  refused(path, with("stop", 5), "stop");
  refused(path, with("stop", {""}), "stop");
  refused(path, with("stop", std::vector<std::string>(17, "a")), "stop");
  refused(path, with("logit_bias", {{"x", 1}}), "logit_bias");
  refused(path, with("logit_bias", {{"1", 101}}), "logit_bias");
  refused(path, with("logit_bias", {{"99999", 1}}), "");
  refused(path, with("top_logprobs", 2), "top_logprobs");
  refused(path, with("stream_options", {{"include_usage", true}}), "stream_options");
  refused(path, with("functions", Json::array()), "functions");
  refused(path, with("response_format", {{"type", "xml"}}), "response_format");
  refused(path, with("chat_template_kwargs", {{"foo", 1}}), "chat_template_kwargs.foo");
  refused(path, with("tools", {{{"type", "magic"}}}), "tools");
  refused(path, with("tool_choice", "required"), "tool_choice");
  const Json pattern = {{"type", "string"}, {"pattern", "a+"}};
  EXPECT_TRUE(contains(refused(path,
                               with("response_format", {{"type", "json_schema"},
                                                        {"json_schema", {{"schema", pattern}}}}),
                               "response_format"),
                       "'pattern'"));
  refused(path, with("response_format", {{"type", "json_schema"}}), "response_format");
  refused(path, with("model", "gpt-9"), "model", 404);
  refused(path, Json::object(), "messages");
  refused(path, Json::array(), "");
  refused(path, {{"messages", "Hello"}}, "messages");
  refused(path, {{"messages", {{{"role", "king"}, {"content", "x"}}}}}, "messages[0]");
  refused(path, {{"messages", {{{"role", "user"}, {"content", 5}}}}}, "messages[0]");
  refused(path, {{"messages", {{{"role", "user"}, {"content", "x"}, {"foo", 1}}}}},
          "messages[0].foo");
  const Json image = Json::array({{{"type", "image_url"}, {"image_url", {{"url", "x"}}}}});
  refused(path, {{"messages", {{{"role", "user"}, {"content", image}}}}}, "messages[0].content");
  refused("/v1/completions", {{"prompt", {1, "a"}}}, "prompt");
  refused("/v1/completions", {{"prompt", {-5}}}, "prompt");
  refused("/v1/completions", {{"prompt", {99999999}}}, "");
  refused("/v1/completions", {{"prompt", ""}}, "");
  refused("/v1/completions", {{"prompt", "a"}, {"max_tokens", 0}}, "max_tokens");
  refused("/v1/completions", {{"prompt", "a"}, {"suffix", "b"}}, "suffix");
  refused("/v1/completions", {{"prompt", std::vector<int32_t>(5000, 5)}}, "");
  // What a request brings about is no fault of the model.
  Json same = with("logit_bias", {{"0", 100}});
  EXPECT_EQ(ask(path, same.dump()).status, 200);
  EXPECT_EQ(ask(path, "{").status, 400);
  EXPECT_EQ(ask(path, std::string(100000, '[')).status, 400);
  EXPECT_EQ(ask(path, "\xff\xfe").status, 400);
  EXPECT_EQ(ask("/v1/embeddings", "{}").status, 404);
  EXPECT_EQ(ask("/v1/nothing", "").status, 404);
  EXPECT_EQ(ask("/v1/models", "").status, 405);
  EXPECT_EQ(ask("/v1/models/mini", "", "GET").status, 200);
  EXPECT_EQ(ask("/v1/models/other", "", "GET").status, 404);
  EXPECT_TRUE(contains(ask("/metrics", "", "GET").body, "nibble_steps_total"));
}

// The file that describes the API knows the paths there are, and the fields that are taken.
TEST_F(Api, IsDescribed) {
  const ApiResponse file = ask("/openapi.json", "", "GET");
  ASSERT_EQ(file.status, 200);
  EXPECT_EQ(file.content_type, "application/json");
  const Json spec = parse_json<Json>(file.body);
  for (const auto& [path, methods] : spec["paths"].items()) {
    const std::string method = methods.contains("get") ? "GET" : "POST";
    EXPECT_EQ(Service::methods(path), method) << path;
  }
  const auto check = [&](const std::string& path, const char* schema, const Json& least) {
    for (const auto& [field, type] : spec["components"]["schemas"][schema]["properties"].items()) {
      Json body = least;
      if (!body.contains(field)) body[field] = nullptr;
      EXPECT_EQ(ask(path, body.dump()).status, 200) << path << " " << field;
    }
  };
  const Json messages = {{{"role", "user"}, {"content", "Hello"}}};
  check("/v1/chat/completions", "ChatRequest", {{"messages", messages}, {"max_tokens", 1}});
  check("/v1/completions", "CompletionRequest", {{"prompt", "Hello"}, {"max_tokens", 1}});
}

TEST_F(Api, AReplyThatNobodyReadsIsCancelled) {
  const Json body = {{"prompt", "Hello"}, {"max_tokens", 900}, {"ignore_eos", true}};
  int asked = 0;
  const ApiResponse r =
      mini_->service.answer({"POST", "/v1/completions", body.dump(), [&] { return ++asked > 0; }});
  EXPECT_EQ(r.status, 499);
  Json streamed = body;
  streamed["stream"] = true;
  {
    const ApiResponse s = ask("/v1/completions", streamed.dump());
    std::string some;
    s.next(some);
  }
  for (int i = 0; i < 1000 && mini_->scheduler.counts().decoding > 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(mini_->scheduler.counts().decoding, 0);
  EXPECT_GE(mini_->scheduler.counts().finished["cancelled"], 1u);
}

TEST_F(Api, TheQueueIsALimit) {
  MiniService small(1, {}, 0);
  const Json body = {
      {"prompt", "Hello"}, {"max_tokens", 900}, {"ignore_eos", true}, {"stream", true}};
  ApiResponse first = small.service.answer({"POST", "/v1/completions", body.dump(), {}});
  const ApiResponse second = small.service.answer({"POST", "/v1/completions", body.dump(), {}});
  EXPECT_EQ(second.status, 429);
  ASSERT_EQ(second.headers.size(), 1u);
  EXPECT_EQ(second.headers[0].first, "Retry-After");
  small.thread.reset();  // the server ends: so does the stream, and says so
  std::string rest;
  while (first.next(rest)) continue;
  EXPECT_TRUE(contains(rest, "\"error\""));
  EXPECT_TRUE(rest.ends_with("data: [DONE]\n\n"));
  EXPECT_EQ(small.service.answer({"POST", "/v1/completions", body.dump(), {}}).status, 503);
}

}  // namespace
}  // namespace nibble::test
