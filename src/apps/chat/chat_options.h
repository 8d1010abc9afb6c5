// SPDX-License-Identifier: MIT
// The options of nibble chat.
#pragma once
#include <filesystem>
#include <optional>
#include <string>

#include "apps/options/generate_options.h"
#include "apps/options/runtime_options.h"
#include "apps/options/template_options.h"
#include "generate/chat_session.h"

namespace nibble {

// What becomes of a conversation when its context has no room for the next turn.
enum class OnFull {
  error,  // the turn is refused
  stop,   // the conversation ends
  slide   // the oldest turns are forgotten
};

struct ChatCommandOptions {
  RuntimeOptions runtime;
  std::optional<std::string> prompt;
  std::string followup = "continue.";
  int64_t turns = 1;
  std::string script;
  bool stop_here = true;
  std::filesystem::path replay, tee, tee_jsonl;
  bool force = false;
  std::optional<bool> interactive;
  bool reset_history = true;
  std::string input_history;
  std::string system;
  OnFull on_full = OnFull::error;
  ChatSessionOptions session;
  TemplateFlags written;
  GenerateFlags generate;
  EscapesFlag escapes;
  CacheOptions cache;
  bool timing = false, check_logits = false, print_ids = false;

  void visit_fields(Fields& f);
  // "": nothing is kept. --input-history, NIBBLE_HISTORY, or where such files lie.
  std::filesystem::path history_file() const;
};

}  // namespace nibble
