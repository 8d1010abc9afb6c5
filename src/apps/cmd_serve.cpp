// SPDX-License-Identifier: MIT
// nibble serve: the model behind OpenAI's API.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <ostream>
#include <thread>

#include "apps/command.h"
#include "apps/options/runtime_options.h"
#include "apps/options/template_options.h"
#include "core/file.h"
#include "core/log.h"
#include "guard/interrupt.h"
#include "runtime/model_template.h"
#include "runtime/runtime.h"
#include "serve/api/reply_form.h"
#include "serve/api/service.h"
#include "serve/http/http_server.h"
#include "serve/schedule/engine_thread.h"

namespace nibble {
namespace {

constexpr int64_t kMostStreams = 16;  // where nothing is said
constexpr size_t kStreamsBytes = size_t(1) << 30;
constexpr size_t kLeastKey = 16;

struct ServeOptions {
  RuntimeOptions runtime;
  CacheOptions cache;
  TemplateFlags written;
  HttpOptions http;
  std::optional<int64_t> streams;
  SchedulerOptions schedule;
  std::string served_name;
  std::filesystem::path api_key_file;
  int32_t connections = 512, body_mib = 16, timeout_s = 0, grace_s = 10;

  void visit_fields(Fields& f) {
    nibble::visit_fields(runtime, f);
    f.section("Server");
    f.add(http.host, {.flag = "--host",
                      .help = "Address to listen on; another than this machine's own needs a key",
                      .value = "ADDRESS"});
    f.add(http.port, {.flag = "--port",
                      .help = "Port to listen on; 0: any that is free",
                      .value = "N",
                      .least = 0,
                      .most = 65535,
                      .common = true});
    f.add(api_key_file,
          {.flag = "--api-key-file",
           .help = "File with the key that requests must bring; the environment's NIBBLE_API_KEY "
                   "is another way",
           .value = "FILE"});
    f.add(http.gate.hosts, {.flag = "--allow-host",
                            .help = "A name this server is known by, beside localhost and "
                                    "addresses",
                            .value = "NAME"});
    f.add(http.gate.origins, {.flag = "--allow-origin",
                              .help = "A web site whose pages may use this server: "
                                      "https://example.org",
                              .value = "ORIGIN"});
    f.add(served_name, {.flag = "--served-name",
                        .help = "The model's id for clients; by default the name of its folder or "
                                "file",
                        .value = "NAME"});
    f.add(connections, {.flag = "--connections",
                        .help = "Connections at a time; more are told 503",
                        .value = "N",
                        .least = 1,
                        .most = 65536});
    f.add(body_mib, {.flag = "--max-body-mib",
                     .help = "Size of a request's body at most",
                     .value = "MIB",
                     .least = 1,
                     .most = 1024});
    f.add(grace_s, {.flag = "--grace",
                    .help = "Seconds that replies have to end when the server is asked to",
                    .value = "S",
                    .least = 0,
                    .most = 3600});
    f.section("Requests");
    f.add(streams, {.flag = "--streams",
                    .help = "Replies at a time, each with a context of its own; by default what "
                            "1 GiB of cache holds, 16 at most",
                    .value = "N",
                    .least = 1,
                    .most = 4096,
                    .common = true});
    f.add(schedule.most_waiting, {.flag = "--queue",
                                  .help = "Requests that may wait for a place; more are told 429",
                                  .value = "N",
                                  .least = 0,
                                  .most = 1 << 20});
    f.add(schedule.chunk_beside,
          {.flag = "--prompt-chunk",
           .help = "Tokens of a prompt between two tokens of replies that are on their way; 0: as "
                   "many as --chunk",
           .value = "N",
           .least = 0,
           .most = 1 << 20});
    f.add(schedule.reuse, {.flag = "--prefix-reuse",
                           .help = "What the cache has of a prompt is not computed again"});
    f.add(timeout_s, {.flag = "--timeout",
                      .help = "Seconds a request may take, waiting included; 0: no limit",
                      .value = "S",
                      .least = 0,
                      .most = 1 << 20});
    written.visit_choice(f);
    nibble::visit_fields(cache, f);
  }
};

std::string read_key(const ServeOptions& o) {
  const char* const environment = std::getenv("NIBBLE_API_KEY");
  std::string key = environment ? environment : "";
  if (!o.api_key_file.empty()) {
    key = read_text_file(o.api_key_file, 1 << 16);
    while (!key.empty() && (key.back() == '\n' || key.back() == '\r')) key.pop_back();
  } else if (!environment) {
    return "";
  }
  const bool sound = std::ranges::all_of(key, [](char c) { return c > 0x20 && c < 0x7f; });
  if (key.size() < kLeastKey || !sound) {
    throw_usage(
        "{}: a key has at least {} letters, digits or signs and no blanks; openssl rand -hex 24 "
        "makes one",
        o.api_key_file.empty() ? "NIBBLE_API_KEY" : o.api_key_file.string(), kLeastKey);
  }
  return key;
}

void check_options(const ServeOptions& o) {
  if (!o.cache.use_kvc) throw_usage("--use-kvc false is about one reply at a time: leave it out");
  for (const std::string& origin : o.http.gate.origins) {
    const bool scheme = origin.starts_with("http://") || origin.starts_with("https://");
    if (!scheme || origin.ends_with("/") || origin.find('*') != origin.npos) {
      throw_usage("--allow-origin {}: expected https://example.org, without a path", origin);
    }
  }
}

std::string name_of(const ServeOptions& o, const Runtime& rt) {
  if (!o.served_name.empty()) return o.served_name;
  const auto folder = rt.paths.config.parent_path().filename().string();
  const bool is_folder = rt.paths.weights.extension().empty() ||
                         rt.paths.weights.filename() == "model.safetensors" || folder == "mini";
  return is_folder && !folder.empty() ? folder : rt.paths.weights.stem().string();
}

int64_t streams_of(const ServeOptions& o, const Runtime& rt) {
  if (o.streams) return *o.streams;
  const EngineOptions e = rt.engine_options(o.cache);
  const size_t each = KvCache::bytes(rt.model.config, e.context, e.cache);
  return std::clamp<int64_t>(int64_t(kStreamsBytes / std::max<size_t>(1, each)), 1, kMostStreams);
}

ServedModel served_model(const ServeOptions& o, const Runtime& rt, int64_t context) {
  ServedModel m;
  m.name = name_of(o, rt);
  m.created = std::time(nullptr);
  m.tokenizer = rt.tokenizer;
  m.style = choose_template(o.written.chat_template, rt.paths.tokenizer);
  m.thinking = o.written.enable_thinking();
  m.stop_ids = rt.stop_ids();
  m.forms = std::make_shared<ReplyForms>();
  m.sample = SampleFlags().over(rt.generation);
  m.context = context;
  m.timeout_s = o.timeout_s;
  return m;
}

ExitCode run_serve(const ServeOptions& given, Io& io) {
  ServeOptions o = given;
  check_options(o);
  o.http.gate.api_key = read_key(o);
  o.http.connections = size_t(o.connections);
  o.http.limits.body = size_t(o.body_mib) << 20;
  if (!o.runtime.model.named()) o.runtime.model.model = "mini";

  const Runtime rt = open_runtime(o.runtime, TokenizerNeed::optional, &o.cache);
  const int64_t streams = streams_of(o, rt);
  BatchEngine engine(*rt.backend, rt.model, rt.engine_options(o.cache, streams), streams);
  const ServedModel model = served_model(o, rt, engine.options().context);
  Scheduler schedule(engine, model.tokenizer, o.schedule);
  const Service service(model, schedule);

  const InterruptGuard interrupt(TerminateIs::request);
  HttpServer server(o.http, [&](const ApiCall& call) { return service.answer(call); });
  {
    EngineThread thread(schedule);
    const size_t cache =
        KvCache::bytes(rt.model.config, streams * model.context, engine.options().cache);
    log_info("{} streams of {} tokens, cache {:.1f} MiB", streams, model.context,
             double(cache) / double(1 << 20));
    io.out << fmt::format("serving {} at {}\n", model.name, server.url()) << std::flush;
    while (!InterruptGuard::requested()) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    log_info("ending: replies have {} s to end; Ctrl+C again ends at once", o.grace_s);
    server.close();
    thread.drain(std::chrono::seconds(o.grace_s));
  }  // what is left is ended with an error, which the server still delivers
  return ExitCode::ok;
}

}  // namespace

Command serve_command() {
  return make_command<ServeOptions>(
      "serve", "Serve a model over HTTP with the OpenAI API",
      "Answers OpenAI's API (/v1/chat/completions, /v1/completions, /v1/models) for many clients "
      "at "
      "once. Without --model it serves the mini model. It listens on this machine alone unless "
      "--host says otherwise. Ctrl+C ends it.",
      run_serve);
}

}  // namespace nibble
