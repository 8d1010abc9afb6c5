// SPDX-License-Identifier: MIT
// What stands behind a nibble_model: a model on a device, asked, taught and written.
#pragma once
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "generate/generator.h"
#include "runtime/runtime.h"
#include "tokenizer/chat_template.h"

namespace nibble {

struct TaughtRow {
  std::string prompt, response;
};

struct TeachSettings {
  int64_t steps = 0;  // 0: once over the rows
  double lr = 1e-5;
  int64_t batch_size = 1, seq_len = 512;
  uint64_t seed = 0;
  std::filesystem::path runs_dir = "nibble-runs";
};

// Something was made or asked, and is not as it should be.
class CheckFailed : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class LoadedModel {
 public:
  LoadedModel(const RuntimeOptions& options, const CacheOptions& cache);
  ~LoadedModel();  // removes what training left in temporary folders
  LoadedModel(const LoadedModel&) = delete;
  LoadedModel& operator=(const LoadedModel&) = delete;

  // The reply to `messages`, in pieces that end where characters end; the callback's false ends it.
  // False where it did. Throws CheckFailed where the model is broken (NaN, one token for ever).
  bool reply(const std::vector<Message>& messages, const GenerateOptions& options,
             const std::function<bool(std::string_view)>& on_text);

  // False where `on_step` said so: then the model is as it was. Throws CheckFailed when the trained
  // model does not pass its self-test.
  using OnStep = std::function<bool(int64_t step, int64_t steps, double loss)>;
  bool teach(const std::vector<TaughtRow>& rows, const TeachSettings& settings,
             const OnStep& on_step);

  // Throws UsageError when `out` exists.
  void save(const std::filesystem::path& out);

 private:
  void open(const std::filesystem::path& model);
  // UsageError while it is being trained, or where it could not be loaded again after that.
  Runtime& runtime();
  std::filesystem::path current() const {
    return trained_.empty() ? options_.model.model : trained_;
  }

  RuntimeOptions options_;
  CacheOptions cache_;
  std::unique_ptr<Runtime> runtime_;
  std::optional<ChatTemplate> chat_;  // the model's own, or nibble's
  std::unique_ptr<Engine> engine_;
  std::filesystem::path trained_;  // the model that is loaded, in a folder of its own; empty: none
};

}  // namespace nibble
