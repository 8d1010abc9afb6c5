// SPDX-License-Identifier: MIT
// nibble as a C++ library: load a model, generate with a callback, teach it rows, write the result.
// A thin layer over nibble_c.h, whose functions are the library's binary interface; this header is
// compiled by its user, with C++17 or later.
#pragma once
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "nibble/nibble_c.h"

namespace nibble {
inline namespace v1 {

// What was attempted, what was found, what would help.
class Failure : public std::runtime_error {
 public:
  Failure(const std::string& message, int code) : std::runtime_error(message), code_(code) {}
  int code() const { return code_; }  // NIBBLE_USAGE .. NIBBLE_BUG

 private:
  int code_;
};

struct LoadOptions {
  std::string device = "auto";
  int threads = 0;           // 0: all cores
  std::int64_t context = 0;  // 0: 8192, or what the model knows
};

struct GenerateOptions {
  std::int64_t max_tokens = 256;
  double temperature = 0, top_p = 1;
  std::int64_t top_k = 0;
  std::uint64_t seed = 0;
};

struct TrainOptions {
  std::int64_t steps = 0;  // 0: once over the rows
  double lr = 1e-5;
  std::int64_t batch_size = 1, seq_len = 512;
  std::uint64_t seed = 0;
  std::string runs_dir = "nibble-runs";
};

struct Message {
  std::string role, content;
};
struct Row {
  std::string prompt, response;
};

// Pieces of a reply as they come; false ends it there.
using OnText = std::function<bool(const std::string& piece)>;
// After every step; false ends the training, and the model stays as it was.
using OnStep = std::function<bool(std::int64_t step, std::int64_t steps, double loss)>;

class Model {
 public:
  // A Hugging Face folder, a .dat or .safetensors file, or "mini".
  explicit Model(const std::string& path, const LoadOptions& o = {}) {
    NIBBLE_INIT(nibble_load_options, c);
    c.device = o.device.c_str();
    c.threads = o.threads;
    c.context = o.context;
    model_.reset(nibble_load(path.c_str(), &c));
    if (!model_) throw Failure(nibble_error(), nibble_error_code());
  }

  // The reply to a conversation whose last message is the user's.
  std::string generate(const std::vector<Message>& conversation, const GenerateOptions& o = {},
                       const OnText& on_text = {}) {
    NIBBLE_INIT(nibble_generate_options, c);
    c.max_tokens = o.max_tokens;
    c.temperature = o.temperature;
    c.top_p = o.top_p;
    c.top_k = o.top_k;
    c.seed = o.seed;
    std::vector<nibble_message> messages;
    for (const Message& m : conversation) messages.push_back({m.role.c_str(), m.content.c_str()});
    TextState state{on_text, {}, nullptr};
    const int code =
        nibble_generate(model_.get(), messages.data(), messages.size(), &c, &take_text, &state);
    finish(code, state.thrown);
    return std::move(state.text);
  }
  std::string generate(const std::string& prompt, const GenerateOptions& o = {},
                       const OnText& on_text = {}) {
    return generate(std::vector<Message>{{"user", prompt}}, o, on_text);
  }

  // False where on_step ended it.
  bool train(const std::vector<Row>& rows, const TrainOptions& o = {}, const OnStep& on_step = {}) {
    NIBBLE_INIT(nibble_train_options, c);
    c.steps = o.steps;
    c.lr = o.lr;
    c.batch_size = o.batch_size;
    c.seq_len = o.seq_len;
    c.seed = o.seed;
    c.runs_dir = o.runs_dir.c_str();
    std::vector<nibble_row> list;
    for (const Row& r : rows) list.push_back({r.prompt.c_str(), r.response.c_str()});
    StepState state{on_step, nullptr};
    const int code = nibble_train(model_.get(), list.data(), list.size(), &c, &take_step, &state);
    finish(code, state.thrown);
    return code == NIBBLE_OK;
  }

  // "x.dat", "x.safetensors" or a Hugging Face folder; nothing that exists is replaced.
  void save(const std::string& path) { finish(nibble_export(model_.get(), path.c_str()), nullptr); }

 private:
  // Callbacks are called through C: what they throw is kept and thrown again behind it.
  struct TextState {
    const OnText& on_text;
    std::string text;
    std::exception_ptr thrown;
  };
  struct StepState {
    const OnStep& on_step;
    std::exception_ptr thrown;
  };
  static std::int32_t take_text(const char* piece, void* user) {
    auto& s = *static_cast<TextState*>(user);
    try {
      s.text += piece;
      return s.on_text && !s.on_text(piece);
    } catch (...) {
      s.thrown = std::current_exception();
      return 1;
    }
  }
  static std::int32_t take_step(std::int64_t step, std::int64_t steps, double loss, void* user) {
    auto& s = *static_cast<StepState*>(user);
    try {
      return s.on_step && !s.on_step(step, steps, loss);
    } catch (...) {
      s.thrown = std::current_exception();
      return 1;
    }
  }
  static void finish(int code, const std::exception_ptr& thrown) {
    if (thrown) std::rethrow_exception(thrown);
    if (code != NIBBLE_OK && code != NIBBLE_STOPPED) throw Failure(nibble_error(), code);
  }

  struct Free {
    void operator()(nibble_model* m) const { nibble_free(m); }
  };
  std::unique_ptr<nibble_model, Free> model_;
};

inline std::string version() { return nibble_version(); }

}  // namespace v1
}  // namespace nibble
