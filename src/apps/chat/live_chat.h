// SPDX-License-Identifier: MIT
// A conversation with a model as nibble chat has it: replies are shown while they come, timed,
// logged, and can be taken back.
#pragma once
#include <optional>
#include <string>

#include "apps/chat/chat_logs.h"
#include "apps/chat/chat_options.h"
#include "apps/command.h"
#include "generate/chat_session.h"
#include "runtime/runtime.h"
#include "runtime/saved_chat.h"

namespace nibble {

class LiveChat {
 public:
  LiveChat(const ChatCommandOptions& options, const Runtime& rt, Io& io);

  void start();  // from the beginning: the system message, and nothing said
  void add(Message m) { session_.add(std::move(m)); }
  // False: the context is full and the conversation ends (OnFull::stop).
  bool ask(const std::string& user);

  // The last question once more, with other draws; nothing: there was none.
  bool regenerate(bool& goes_on);
  std::optional<std::string> take_back();  // the question that was taken back
  const std::string& system() const { return system_; }
  void set_system(const std::string& text);
  double temperature() const;
  void set_temperature(double t) { generate_.sample.temperature = t; }
  void save(const std::filesystem::path& file, Existing existing);
  void load(const std::filesystem::path& file);
  const std::vector<Message>& messages() const { return session_.messages(); }

  void check_logits();
  ExitCode code() const { return code_; }
  int64_t context_tokens() const { return session_.context_tokens(); }
  int64_t room() const { return engine_.options().context - context_tokens(); }

 private:
  bool answer(const std::string& user, uint64_t more_seed);
  const CacheOrigin& origin();

  const ChatCommandOptions& o_;
  const Runtime& rt_;
  Io& io_;
  Engine engine_;
  ChatSession session_;
  ChatLogs logs_;
  GenerateFlags generate_;
  std::string system_;
  uint64_t regenerated_ = 0;  // how often the last question was asked again
  std::optional<CacheOrigin> origin_;
  ExitCode code_ = ExitCode::ok;
};

}  // namespace nibble
