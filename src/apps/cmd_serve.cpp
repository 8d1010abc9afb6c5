// SPDX-License-Identifier: MIT
// nibble serve: the model behind OpenAI's API, and the page.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <ostream>
#include <thread>

#include "apps/command.h"
#include "apps/options/device_option.h"
#include "apps/options/runtime_options.h"
#include "apps/options/template_options.h"
#include "apps/options/user_defaults.h"
#include "core/file.h"
#include "core/log.h"
#include "core/shipped_files.h"
#include "guard/interrupt.h"
#include "runlog/run_record.h"
#include "runtime/replicas.h"
#include "serve/api/model_shelf.h"
#include "serve/api/running_model.h"
#include "serve/http/http_server.h"
#include "serve/page/page.h"
#include "serve/page/page_files.h"

namespace nibble {
namespace {

constexpr size_t kLeastKey = 16;
constexpr int64_t kLearnedStreams = 4;  // of a model beside the first

struct ServeOptions {
  RuntimeOptions runtime;
  CacheOptions cache;
  TemplateFlags written;
  HttpOptions http;
  std::optional<int64_t> streams, cache_mib;
  SchedulerOptions schedule;
  int64_t most_waiting = RequestQueue::kMostWaiting;
  std::string served_name;
  std::filesystem::path api_key_file, work, runs_dir, models_dir;
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
    f.section("The page");
    f.add(work, {.flag = "--work",
                 .help = "Where what is taught on the page is kept; default: "
                         "$XDG_STATE_HOME/nibble/serve, or ~/.local/state/nibble/serve",
                 .value = "DIR",
                 .common = true});
    f.add(runs_dir, {.flag = "--runs-dir",
                     .help = "The log of runs that the page shows and adds to; default: runs in "
                             "--work",
                     .value = "DIR"});
    f.add(models_dir, {.flag = "--models-dir",
                       .help = "Where models go that are kept on the page; default: models in "
                               "--work",
                       .value = "DIR"});
    f.section("Requests");
    f.add(streams, {.flag = "--streams",
                    .help = "Replies at a time on each device, each with a context of its own; by "
                            "default 16 that share 1 GiB of cache (on a GPU what 1 GiB holds, 16 "
                            "at most)",
                    .value = "N",
                    .least = 1,
                    .most = 4096,
                    .common = true});
    f.add(cache_mib,
          {.flag = "--cache-mib",
           .help = "Memory of each device's cache at most, one context at least; replies "
                   "share it in blocks, and when it is full they wait (not on a GPU)",
           .value = "MIB",
           .least = 1,
           .most = int64_t(1) << 30});
    f.add(most_waiting, {.flag = "--queue",
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

ServeSettings settings_of(const ServeOptions& o) {
  ServeSettings s;
  s.cache = o.cache;
  s.streams = o.streams;
  if (o.cache_mib) s.cache_bytes = uint64_t(*o.cache_mib) << 20;
  s.schedule = o.schedule;
  s.most_waiting = o.most_waiting;
  s.chat_template = o.written.chat_template;
  s.thinking = o.written.enable_thinking();
  s.timeout_s = o.timeout_s;
  return s;
}

// Without a home it is a folder of the place the server was started in. Nothing is made before
// something is taught.
PageFolders folders_of(const ServeOptions& o) {
  namespace fs = std::filesystem;
  const fs::path state = user_state_folder();
  const fs::path work = fs::absolute(!o.work.empty() ? o.work
                                     : state.empty() ? "nibble-serve"
                                                     : state / "serve");
  const auto in = [&](const fs::path& given, const char* name) {
    return given.empty() ? work / name : fs::absolute(given);
  };
  return {work, in(o.runs_dir, "runs"), in(o.models_dir, "models")};
}

// A model that was learned is opened as the first one was, with a smaller cache.
TeachSettings teach_settings(const ServeOptions& o, const RunningModel& first) {
  TeachSettings t;
  const Runtime& rt = first.runtime();
  t.base = {o.runtime.model, rt.paths.weights, device_name(rt.device), o.runtime.threads,
            o.written.chat_template,
            // A GGUF becomes a .dat, whose linear layers are NVFP4.
            !any_packed(rt.model.weights) && rt.source->format() != "gguf"};
  if (const auto program = this_program(); !program.empty()) t.program.name = program.string();
  t.open = [o](const std::filesystem::path& model, const std::string& name) {
    RuntimeOptions runtime = o.runtime;
    runtime.model = {};
    runtime.model.model = model;
    runtime.device.beside.clear();
    ServeSettings settings = settings_of(o);
    settings.streams = std::min(o.streams.value_or(kLearnedStreams), kLearnedStreams);
    return std::make_shared<RunningModel>(open_runtime(runtime, TokenizerNeed::optional, &o.cache),
                                          name, settings);
  };
  return t;
}

ExitCode run_serve(const ServeOptions& given, Io& io) {
  ServeOptions o = given;
  check_options(o);
  o.http.gate.api_key = read_key(o);
  o.http.connections = size_t(o.connections);
  o.http.limits.body = size_t(o.body_mib) << 20;
  if (!o.runtime.model.named()) o.runtime.model.model = "mini";

  const ServeSettings settings = settings_of(o);
  std::vector<Runtime> opened =
      open_replicas(o.runtime, TokenizerNeed::optional, &o.cache,
                    [&](const Runtime& r) { return RunningModel::cache_bytes(r, settings); });
  const std::string name = name_of(o, opened.front());
  RunningModel model(std::move(opened), name, settings);
  ModelShelf shelf(model);
  Page page(shelf, folders_of(o), teach_settings(o, model));
  o.http.gate.open_paths = page_paths();

  const InterruptGuard interrupt(TerminateIs::request);
  HttpServer server(o.http, [&](const ApiCall& call) { return page.answer(call); });
  const KvCache& cache = model.cache();
  const std::string each =
      model.replicas() > 1 ? fmt::format("{} replicas, each with ", model.replicas()) : "";
  const double mib = double(cache.memory_bytes()) / double(1 << 20);
  if (cache.block() > 0) {
    log_info(
        "{}{} streams of {} tokens at most share a cache of {:.1f} MiB: {} blocks of {} tokens",
        each, model.streams(), model.model().context, mib, cache.blocks().blocks(), cache.block());
  } else {
    log_info("{}{} streams of {} tokens, cache {:.1f} MiB", each, model.streams(),
             model.model().context, mib);
  }
  io.out << fmt::format("serving {} at {}\n", model.name(), server.url()) << std::flush;
  while (!InterruptGuard::requested()) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  log_info("ending: replies have {} s to end; Ctrl+C again ends at once", o.grace_s);
  server.close();
  if (const std::string run = page.training(); !run.empty()) {
    log_info("{} goes on being trained; nibble runs watch {} --runs-dir {} shows it", run, run,
             folders_of(o).runs.string());
  }
  // What is left then is ended with an error, which the server still delivers.
  shelf.end(std::chrono::seconds(o.grace_s));
  return ExitCode::ok;
}

}  // namespace

Command serve_command() {
  return make_command<ServeOptions>(
      "serve", "Serve a model over HTTP: the OpenAI API, and a page to chat and teach on",
      "Answers OpenAI's API (/v1/chat/completions, /v1/completions, /v1/models) for many clients "
      "at "
      "once, and shows a page at its address on which one chats with the model, teaches it and "
      "looks at runs. Without --model it serves the mini model. It listens on this machine alone "
      "unless --host says otherwise. Ctrl+C ends it; a training that was started on the page goes "
      "on.",
      run_serve);
}

}  // namespace nibble
