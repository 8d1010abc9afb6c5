// SPDX-License-Identifier: MIT
// libFuzzer target: bytes as a probe file; after an 'r', as the rules of a good one.
#include <string>

#include "core/error.h"
#include "eval/probe_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string text(reinterpret_cast<const char*>(data), size);
  if (!text.empty() && text[0] == 'r') {
    text = R"({"name":"n","version":1,"probes":[{"id":"a","group":"g","language":"zh",)"
           R"("messages":[{"role":"user","content":"q"}],"rules":[)" +
           text.substr(1) + "]}]}";
  }
  try {
    const nibble::ProbeSet set = nibble::parse_probes(text, "probes.json");
    // What is accepted can be judged.
    const nibble::ProbeReply reply{"我是 F# 之神", {1, 2, 3}, nibble::FinishReason::stop};
    if (set.probes.empty()) __builtin_trap();
    for (const nibble::Probe& p : set.probes) {
      if (p.rules.empty() || p.messages.empty() || p.max_tokens < 1) __builtin_trap();
      nibble::reply_problem(p.rules, reply);
      for (const nibble::ProbeRule& r : p.rules) nibble::describe(r);
    }
  } catch (const nibble::FormatError&) {
  }
  return 0;
}
