// SPDX-License-Identifier: MIT
// The mini model behind the API, with its engine's thread.
#pragma once
#include <memory>

#include "generate/generator.h"
#include "runtime/model_template.h"
#include "runtime/runtime.h"
#include "serve/api/reply_form.h"
#include "serve/api/service.h"
#include "serve/schedule/engine_thread.h"
#include "support/paths.h"

namespace nibble::test {

class MiniService {
 public:
  explicit MiniService(int64_t streams = 3, SchedulerOptions o = {},
                       int64_t most_waiting = RequestQueue::kMostWaiting)
      : runtime(open()),
        cache(),
        engine(*runtime.backend, runtime.model, runtime.engine_options(cache, streams), streams),
        model(describe()),
        scheduler(engine, o),
        queue({&scheduler}, model.tokenizer, most_waiting),
        thread(std::make_unique<EngineThread>(scheduler, queue)),
        service(model, queue) {}

  // What generate says to the same tokens.
  GenerateResult alone(const std::vector<int32_t>& prompt, int64_t max_tokens) {
    Engine own(*runtime.backend, runtime.model, runtime.engine_options(cache));
    GenerateOptions o;
    o.max_tokens = max_tokens;
    o.stop_ids = runtime.stop_ids();
    return generate(own, prompt, o);
  }
  std::vector<int32_t> chat_prompt(const std::string& user) const {
    return encode_chat(*runtime.tokenizer, std::vector<Message>{{Role::user, user}}, {},
                       {model.style, GenerationPrompt::yes, {}}, ContentTokens::plain);
  }
  std::string chat_text(const std::string& user) {
    return runtime.tokenizer->decode(alone(chat_prompt(user), 100).ids, DecodeSpecial::skip);
  }

  Runtime runtime;
  CacheOptions cache;
  BatchEngine engine;
  ServedModel model;
  Scheduler scheduler;
  RequestQueue queue;
  std::unique_ptr<EngineThread> thread;
  Service service;

 private:
  static Runtime open() {
    RuntimeOptions o;
    o.model.model = kSourceDir + std::string("/models/mini");
    o.device = Device::cpu;
    o.threads = 2;
    return open_runtime(o, TokenizerNeed::required);
  }
  ServedModel describe() const {
    ServedModel m;
    m.name = "mini";
    m.tokenizer = runtime.tokenizer;
    m.style = choose_template("", runtime.paths.tokenizer);
    m.stop_ids = runtime.stop_ids();
    m.forms = std::make_shared<ReplyForms>();
    m.context = engine.options().context;
    return m;
  }
};

}  // namespace nibble::test
