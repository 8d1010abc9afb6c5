// SPDX-License-Identifier: MIT
#include "job/keep/kept_source.h"

#include <charconv>

#include "core/error.h"
#include "core/file.h"
#include "eval/probe_file.h"

namespace nibble {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kSelf = "self:";
constexpr uint64_t kMostBytes = 16ull << 30;
constexpr int64_t kMostSelfTokens = int64_t(1) << 40;

int64_t self_tokens(const std::string& name) {
  const std::string_view digits = std::string_view(name).substr(kSelf.size());
  int64_t tokens = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), tokens);
  if (error != std::errc() || end != digits.data() + digits.size() || tokens < 1 ||
      tokens > kMostSelfTokens) {
    throw_usage(
        "--keep {}: after self: stands how many tokens the base is to write, as in "
        "self:50000",
        name);
  }
  return tokens;
}

// The lines of a JSONL file, those that are blank left out.
template <class Use>
void for_each_unit(const std::string& name, Use&& use) {
  const std::string text = read_text_file(name, kMostBytes);
  for (const DataUnit& unit : split_units(text, DataFormat::jsonl, Documents::paragraphs).units) {
    try {
      if (const auto fault = find_fault(unit)) throw_format("{}", fault->what);
      if (!use(unit.text)) return;
    } catch (const FormatError& e) {
      throw_format("{}:{}: {}", name, unit.line, e.what());
    } catch (const UsageError& e) {
      throw_format("{}:{}: {}", name, unit.line, e.what());
    }
  }
}

KeptKind kind_of(JsonLineKind kind) {
  switch (kind) {
    case JsonLineKind::text: return KeptKind::text;
    case JsonLineKind::conversation: return KeptKind::conversations;
    case JsonLineKind::prompt: break;
  }
  return KeptKind::prompts;
}

}  // namespace

KeptSource kept_source(const std::string& name) {
  if (name.starts_with(kSelf)) {
    return {name, KeptKind::self, DataFormat::jsonl, self_tokens(name)};
  }
  const fs::path path = name;
  if (path.extension() == ".json") return {name, KeptKind::prompts};
  const auto format = format_named(path, DataUse::pretrain);
  if (!format) {
    throw_usage(
        "--keep {}: the name does not tell what it holds; text is .txt, conversations are .tsv or "
        ".jsonl, prompts are .jsonl or a probe file (.json), and self:TOKENS is what the model "
        "writes itself",
        name);
  }
  if (*format == DataFormat::text) return {name, KeptKind::text, *format};
  if (*format == DataFormat::tsv) return {name, KeptKind::conversations, *format};
  std::optional<KeptKind> kind;
  for_each_unit(name, [&](std::string_view line) {
    kind = kind_of(json_line_kind(line));
    return false;
  });
  if (!kind) throw_format("{}: nothing to keep: it has no line that is not blank", name);
  return {name, *kind};
}

std::vector<std::vector<Message>> kept_prompts(const KeptSource& source) {
  std::vector<std::vector<Message>> prompts;
  if (fs::path(source.name).extension() == ".json") {
    for (Probe& p : read_probes(source.name).set.probes) {
      // Of a conversation with the model's own turns in it, what is asked first.
      if (!p.own_turns.empty()) p.messages.resize(p.own_turns.front().at);
      prompts.push_back(std::move(p.messages));
    }
    return prompts;
  }
  for_each_unit(source.name, [&](std::string_view line) {
    prompts.push_back(parse_prompt_line(line));
    return true;
  });
  return prompts;
}

}  // namespace nibble
