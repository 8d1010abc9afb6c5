// SPDX-License-Identifier: MIT
// The C functions of include/nibble/nibble_c.h: arguments checked, exceptions turned into codes.
#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "core/error.h"
#include "core/log.h"
#include "core/shipped_files.h"
#include "core/version.h"
#include "library/loaded_model.h"
#include "nibble/nibble_c.h"
#include "runtime/device.h"

struct nibble_model {
  nibble::LoadedModel loaded;
};

namespace nibble {
namespace {

// A library says nothing on its own but warnings, until its user wants to hear more.
[[maybe_unused]] const bool quiet_at_first = (set_log_level(LogLevel::quiet), true);

thread_local std::string last_error;
thread_local int32_t last_code = NIBBLE_OK;

int32_t failed(int32_t code, const char* message) {
  last_error = message;
  return last_code = code;
}

// Runs a call; nothing thrown leaves the library.
template <class Call>
int32_t guarded(Call&& call) noexcept {
  last_error.clear();
  last_code = NIBBLE_OK;
  try {
    return last_code = call();
  } catch (const UsageError& e) {
    return failed(NIBBLE_USAGE, e.what());
  } catch (const FormatError& e) {
    return failed(NIBBLE_FILE, e.what());
  } catch (const DeviceError& e) {
    return failed(NIBBLE_DEVICE, e.what());
  } catch (const CheckFailed& e) {
    return failed(NIBBLE_CHECK_FAILED, e.what());
  } catch (const std::filesystem::filesystem_error& e) {
    return failed(NIBBLE_FILE, e.what());
  } catch (const std::bad_alloc&) {
    return failed(NIBBLE_DEVICE, "out of memory");
  } catch (const std::exception& e) {
    return failed(NIBBLE_BUG, e.what());
  } catch (...) {
    return failed(NIBBLE_BUG, "something that is no exception of C++'s library was thrown");
  }
}

// A copy of the caller's options with defaults (zeroes) for members its version does not have.
template <class Options>
Options copied(const Options* from, const char* what) {
  Options to = {};
  if (!from) return to;
  if (from->struct_size < sizeof(size_t) || from->struct_size > 4096) {
    throw_usage("{}: struct_size is {}, set it to sizeof({})", what, from->struct_size, what);
  }
  std::memcpy(&to, from, std::min(from->struct_size, sizeof to));
  return to;
}

const char* required(const char* text, const char* what) {
  if (!text) throw_usage("{} is NULL", what);
  return text;
}

Role role_of(const char* name) {
  const std::string_view role = required(name, "the role of a message");
  for (const Role r : {Role::system, Role::user, Role::assistant}) {
    if (role == role_name(r)) return r;
  }
  throw_usage("'{}' is not a role; expected system, user or assistant", role);
}

// "mini" is found from where this library lies: PREFIX/lib, or PREFIX/lib/ARCHITECTURE.
std::filesystem::path named_model(const std::filesystem::path& path) {
  std::error_code ec;
  Dl_info here = {};
  if (std::filesystem::exists(path, ec) ||
      dladdr(reinterpret_cast<const void*>(&nibble_version), &here) == 0) {
    return path;
  }
  const std::filesystem::path library = std::filesystem::canonical(here.dli_fname, ec);
  for (const auto& place : {library, library.parent_path()}) {
    const std::filesystem::path shipped = find_shipped_model(path, place);
    if (!shipped.empty()) return shipped;
  }
  return path;
}

LoadedModel& of(nibble_model* model) {
  if (!model) throw_usage("the model is NULL");
  return model->loaded;
}

}  // namespace
}  // namespace nibble

using namespace nibble;

const char* nibble_version(void) { return nibble::kVersion; }
const char* nibble_error(void) { return last_error.c_str(); }
int32_t nibble_error_code(void) { return last_code; }
void nibble_set_log(int32_t level) {
  set_log_level(level <= 0 ? LogLevel::quiet : level == 1 ? LogLevel::info : LogLevel::debug);
}

nibble_model* nibble_load(const char* path, const nibble_load_options* options) {
  nibble_model* model = nullptr;
  guarded([&]() -> int32_t {
    const nibble_load_options o = copied(options, "nibble_load_options");
    RuntimeOptions runtime;
    runtime.model.model = named_model(required(path, "the model's path"));
    const std::string device = o.device ? o.device : "auto";
    if (const std::string wrong = parse_device(device, runtime.device); !wrong.empty()) {
      throw_usage("the device '{}' {}; expected auto, cpu, cuda or cuda:N", device, wrong);
    }
    runtime.threads = o.threads;
    CacheOptions cache;
    if (o.context < 0) throw_usage("a context of {} tokens was asked for", o.context);
    if (o.context > 0) cache.context = o.context;
    model = new nibble_model{LoadedModel(runtime, cache)};
    return NIBBLE_OK;
  });
  return model;
}

void nibble_free(nibble_model* model) { delete model; }

int32_t nibble_generate(nibble_model* model, const nibble_message* messages, size_t count,
                        const nibble_generate_options* options, nibble_text_callback on_text,
                        void* user) {
  return guarded([&]() -> int32_t {
    const nibble_generate_options o = copied(options, "nibble_generate_options");
    if (!messages || count == 0) throw_usage("there is no message to answer");
    std::vector<Message> conversation;
    for (size_t i = 0; i < count; ++i) {
      conversation.push_back(
          {role_of(messages[i].role), required(messages[i].content, "the content of a message")});
    }
    if (conversation.back().role != Role::user) throw_usage("the last message is not the user's");
    GenerateOptions g;
    if (o.max_tokens != 0) g.max_tokens = o.max_tokens;
    g.sample.temperature = o.temperature;
    if (o.top_p != 0) g.sample.top_p = o.top_p;
    g.sample.top_k = o.top_k;
    g.sample.seed = o.seed;
    const bool whole = of(model).reply(conversation, g, [&](std::string_view piece) {
      return !on_text || on_text(std::string(piece).c_str(), user) == 0;
    });
    return whole ? NIBBLE_OK : NIBBLE_STOPPED;
  });
}

int32_t nibble_train(nibble_model* model, const nibble_row* rows, size_t count,
                     const nibble_train_options* options, nibble_step_callback on_step,
                     void* user) {
  return guarded([&]() -> int32_t {
    const nibble_train_options o = copied(options, "nibble_train_options");
    std::vector<TaughtRow> taught;
    for (size_t i = 0; rows && i < count; ++i) {
      taught.push_back({required(rows[i].prompt, "a row's prompt"),
                        required(rows[i].response, "a row's response")});
    }
    TeachSettings s;
    s.steps = o.steps;
    if (o.lr != 0) s.lr = o.lr;
    if (o.batch_size != 0) s.batch_size = o.batch_size;
    if (o.seq_len != 0) s.seq_len = o.seq_len;
    if (o.seed != 0) s.seed = o.seed;
    if (o.runs_dir) s.runs_dir = o.runs_dir;
    const bool done = of(model).teach(taught, s, [&](int64_t step, int64_t steps, double loss) {
      return !on_step || on_step(step, steps, loss, user) == 0;
    });
    return done ? NIBBLE_OK : NIBBLE_STOPPED;
  });
}

int32_t nibble_export(nibble_model* model, const char* path) {
  return guarded([&]() -> int32_t {
    of(model).save(required(path, "the path to write to"));
    return NIBBLE_OK;
  });
}
