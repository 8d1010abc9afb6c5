// SPDX-License-Identifier: MIT
#include "serve/api/chat_reply.h"

#include <ctime>

#include "core/json.h"
#include "serve/api/api_error.h"
#include "serve/api/choices.h"
#include "serve/api/reply_form.h"
#include "serve/api/reply_ids.h"
#include "serve/api/token_json.h"
#include "serve/api/tool_calls.h"
#include "serve/api/usage.h"

namespace nibble {
namespace {

using Json = nlohmann::ordered_json;

Json call_json(const CalledTool& call) {
  return {{"id", call.id},
          {"type", "function"},
          {"function", {{"name", call.name}, {"arguments", call.arguments}}}};
}

// One choice as it grows, in either form.
struct ChatChoice {
  explicit ChatChoice(bool tools) : reader(tools) {}
  ToolCallReader reader;
  std::string text, finish;
  std::vector<CalledTool> calls;
  Json logprobs = Json::array();
  bool begun = false;
};

class ChatAnswer {
 public:
  ChatAnswer(const ChatRequest& request, const ServedModel& model, RequestQueue& queue)
      : model_(model),
        id_(new_reply_id("chatcmpl")),
        created_(std::time(nullptr)),
        facts_(request.top_logprobs.has_value()),
        usage_(request.common.stream_usage),
        choices_(size_t(request.common.n), ChatChoice(!request.tools.empty())),
        streams_(submit(request, model, queue)) {
    streams_.set_choices_per_prompt(choices_.size());
  }

  ApiResponse whole(const std::function<bool()>& gone) {
    if (!streams_.run([&](size_t i, ReplyStream&, ReplyStream::News& n) { take(i, n); }, gone)) {
      return {499, "application/json", "", {}, {}};  // nobody reads it
    }
    Json j = head("chat.completion");
    j["choices"] = Json::array();
    for (size_t i = 0; i < choices_.size(); ++i) {
      ChatChoice& c = choices_[i];
      Json message = {{"role", "assistant"}, {"content", c.text}, {"refusal", Json()}};
      if (!c.calls.empty()) {
        if (c.text.empty()) message["content"] = Json();
        for (const CalledTool& call : c.calls) message["tool_calls"].push_back(call_json(call));
      }
      j["choices"].push_back({{"index", i},
                              {"message", std::move(message)},
                              {"logprobs", logprobs(c)},
                              {"finish_reason", c.finish}});
    }
    j["usage"] = usage_json(streams_);
    return {200, "application/json", json_text(j), {}, {}};
  }

  // The next events; false: those were the last.
  bool next(std::string& out) {
    const auto more = [&] {
      return streams_.poll([&](size_t i, ReplyStream&, ReplyStream::News& n) { show(i, n, out); });
    };
    return next_sse(done_, out, more, [&] {
      if (!usage_) return;
      Json j = head("chat.completion.chunk");
      j["choices"] = Json::array();
      j["usage"] = usage_json(streams_);
      out += sse_event(j);
    });
  }

 private:
  static std::vector<std::shared_ptr<ReplyStream>> submit(const ChatRequest& r,
                                                          const ServedModel& model,
                                                          RequestQueue& queue) {
    const std::vector<int32_t> prompt = r.prompt(model);
    std::vector<StreamRequest> all;
    for (int64_t i = 0; i < r.common.n; ++i) {
      all.push_back(r.common.request(prompt, i));
      all.back().top_logprobs = r.top_logprobs;
      if (r.form) {
        all.back().rule =
            model.forms->rule(*r.form, model.require_tokenizer(), r.common.reply.stop_ids);
      }
    }
    return queue.submit(std::move(all));
  }

  Json head(const char* object) const {
    return {{"id", id_}, {"object", object}, {"created", created_}, {"model", model_.name}};
  }

  Json logprobs(ChatChoice& c) const {
    if (!facts_) return Json();
    return {{"content", std::exchange(c.logprobs, Json::array())}, {"refusal", Json()}};
  }

  // What the news add to a choice: its text and calls since the last time are the result.
  ToolCallReader::Out take(size_t i, ReplyStream::News& news) {
    ChatChoice& c = choices_[i];
    ToolCallReader::Out out;
    const auto add = [&](ToolCallReader::Out more) {
      out.text += more.text;
      for (CalledTool& call : more.calls) out.calls.push_back(std::move(call));
    };
    for (const ReplyToken& t : news.tokens) {
      add(c.reader.push(t.text));
      if (t.facts) c.logprobs.push_back(chat_logprob(*model_.tokenizer, *t.facts));
    }
    if (news.end) {
      add(c.reader.push(news.end->text));
      add(c.reader.flush());
      c.finish = finish_reason_text(*news.end);
      if (c.finish == "stop" && c.reader.calls() > 0) c.finish = "tool_calls";
    }
    c.text += out.text;
    c.calls.insert(c.calls.end(), out.calls.begin(), out.calls.end());
    return out;
  }

  void show_delta(size_t i, Json delta, std::string& out, Json finish = Json()) {
    Json j = head("chat.completion.chunk");
    j["choices"] = Json::array({{{"index", i},
                                 {"delta", std::move(delta)},
                                 {"logprobs", logprobs(choices_[i])},
                                 {"finish_reason", std::move(finish)}}});
    if (usage_) j["usage"] = Json();
    out += sse_event(j);
  }

  void show(size_t i, ReplyStream::News& news, std::string& out) {
    ChatChoice& c = choices_[i];
    if (!std::exchange(c.begun, true)) {
      show_delta(i, {{"role", "assistant"}, {"content", ""}, {"refusal", Json()}}, out);
    }
    const size_t calls_before = c.calls.size();
    const ToolCallReader::Out more = take(i, news);
    if (!more.text.empty() || !c.logprobs.empty()) {
      show_delta(i, {{"content", more.text}}, out);
    }
    for (size_t k = 0; k < more.calls.size(); ++k) {
      Json call = call_json(more.calls[k]);
      call["index"] = calls_before + k;
      show_delta(i, {{"tool_calls", Json::array({std::move(call)})}}, out);
    }
    if (news.end) show_delta(i, Json::object(), out, c.finish);
    c.text.clear();  // it was shown
  }

  const ServedModel& model_;
  std::string id_;
  int64_t created_;
  bool facts_, usage_, done_ = false;
  std::vector<ChatChoice> choices_;
  Choices streams_;
};

}  // namespace

ApiResponse answer_chat(const Json& body, const ServedModel& model, RequestQueue& queue,
                        const std::function<bool()>& gone) {
  const ChatRequest request = read_chat_request(body, model);
  auto answer = std::make_shared<ChatAnswer>(request, model, queue);
  if (!request.common.stream) return answer->whole(gone);
  ApiResponse r{200, "text/event-stream", "", {}, {}};
  r.next = [answer](std::string& out) { return answer->next(out); };
  return r;
}

}  // namespace nibble
