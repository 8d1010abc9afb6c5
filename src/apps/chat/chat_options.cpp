// SPDX-License-Identifier: MIT
#include "apps/chat/chat_options.h"

#include <cstdlib>

#include "apps/editor/input_history.h"

namespace nibble {

void ChatCommandOptions::visit_fields(Fields& f) {
  nibble::visit_fields(runtime, f);
  f.section("Conversation");
  f.add(prompt, {.flag = "--prompt",
                 .help = "The first user turn",
                 .value = "TEXT",
                 .aliases = {"-p"},
                 .common = true});
  f.add(turns, {.flag = "--turns",
                .help = "Scripted turns: --prompt, then --followup-prompt again and again",
                .value = "N",
                .least = 1});
  f.add(followup, {.flag = "--followup-prompt",
                   .help = "What is said from the second of --turns on",
                   .value = "TEXT"});
  f.add(script,
        {.flag = "--script",
         .help = "User turns from a file, one a line; `predecessor` is its eight-turn scenario",
         .value = "FILE|predecessor"});
  f.add(stop_here, {.flag = "--stop-here",
                    .help = "End --script predecessor after its eight turns; false asks two more"});
  f.add(replay,
        {.flag = "--replay",
         .help = "Take a conversation from a --tee-jsonl file and answer its last question anew",
         .value = "FILE",
         .aliases = {"--prompt-from-chat-session"}});
  f.add(interactive,
        {.flag = "--interactive",
         .help = "Go on typing after the scripted turns; default: when nothing is scripted",
         .aliases = {"--ifInteractive"}});
  f.add(reset_history,
        {.flag = "--interactive-reset-history", .help = "Forget the scripted turns before typing"});
  f.add(input_history,
        {.flag = "--input-history",
         .help = "Where typed lines are kept for the next sitting; off keeps none. By default what "
                 "NIBBLE_HISTORY names, or ~/.local/state/nibble/chat_history",
         .value = "FILE|off"});
  f.add(system,
        {.flag = "--system", .help = "The system message", .value = "TEXT", .common = true});
  f.add_choice(session.history,
               {.flag = "--history",
                .help = "What a later turn continues: the very tokens of the conversation, or its "
                        "messages rendered "
                        "again; both warns where they differ",
                .aliases = {"--HistoryMode"}},
               {{"tokens", HistoryMode::tokens},
                {"messages", HistoryMode::messages},
                {"both", HistoryMode::both}});
  f.add(session.persistent,
        {.flag = "--persistent", .help = "Keep the cache across turns; false computes all again"});
  f.add_choice(on_full,
               {.flag = "--on-full",
                .help = "When the context has no room for a turn: refuse the turn, end the "
                        "conversation, or forget the oldest turns (never the system message)"},
               {{"error", OnFull::error}, {"stop", OnFull::stop}, {"slide", OnFull::slide}});
  written.visit_fields(f);
  generate.visit_fields(f);
  nibble::visit_fields(cache, f);
  f.section("Output");
  f.add(timing, {.flag = "--timing", .help = "Print times and tokens per second after each turn"});
  f.add(print_ids, {.flag = "--print-ids", .help = "Print the ids of each reply"});
  escapes.visit_fields(f);
  f.add(check_logits, {.flag = "--check-logits",
                       .help = "After the scripted turns, look for NaN and infinities"});
  f.add(tee, {.flag = "--tee",
              .help = "Append the conversation to a text file",
              .value = "FILE",
              .aliases = {"--tee-object-chat-session"}});
  f.add(tee_jsonl, {.flag = "--tee-jsonl",
                    .help = "Append the conversation to a JSONL file",
                    .value = "FILE",
                    .aliases = {"--tee-object-chat-session-json"}});
  f.add(force, {.flag = "--force", .help = "Append to a --tee or --tee-jsonl that exists"});
}

std::filesystem::path ChatCommandOptions::history_file() const {
  const char* const named = std::getenv("NIBBLE_HISTORY");
  std::string file = input_history;
  if (file.empty() && named != nullptr) file = named;
  if (file == "off") return {};
  return file.empty() ? default_history_file() : std::filesystem::path(file);
}

}  // namespace nibble
