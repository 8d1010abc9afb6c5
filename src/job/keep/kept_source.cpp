// SPDX-License-Identifier: MIT
#include "job/keep/kept_source.h"

#include <charconv>

#include "core/error.h"
#include "core/file.h"
#include "core/log.h"
#include "data/read/data_files.h"
#include "data/read/ignored_keys.h"
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

// The records of a file or a folder, until `use` has enough.
template <class Use>
void for_each_record(const std::string& name, DataWants wants, ExtraKeys extra, Use&& use) {
  for (const DataFile& f :
       data_files(name, DataFormat::automatic, DataUse::pretrain, extra).files) {
    const std::string file = f.path.string();
    const DataText read = read_data_text(f.path, WithHash::no);
    const DataReader reader(read.text, file,
                            {f.format, DataUse::pretrain, Documents::whole_file, extra});
    for (size_t i = 0; i < reader.units().size(); ++i) {
      DataReader::Result r = reader.read(i, wants);
      if (!r.error.empty()) throw_format("{}:{}: {}", file, r.line, r.error);
      if (!use(std::move(r.record))) return;
    }
  }
}

KeptKind kind_of(const DataRecord& record) {
  if (record.messages.empty()) return KeptKind::text;
  return record.messages.back().role == Role::assistant ? KeptKind::conversations
                                                        : KeptKind::prompts;
}

// A .json that begins like an object is a probe file; data is an array there.
bool is_probe_file(const fs::path& path) {
  if (path.extension() != ".json") return false;
  const std::string text = read_text_file(path, kMostBytes);
  const size_t at = text.find_first_not_of(" \t\r\n");
  return at == text.npos || text[at] != '[';
}

}  // namespace

KeptSource kept_source(const std::string& name, ExtraKeys extra) {
  if (name.starts_with(kSelf)) return {name, KeptKind::self, false, self_tokens(name), extra};
  const fs::path path = name;
  std::error_code ignored;
  const bool folder = fs::is_directory(path, ignored);
  if (!folder && !format_named(path, DataUse::pretrain)) {
    throw_usage(
        "--keep {}: the name does not tell what it holds; text is .txt, conversations are .tsv, "
        ".jsonl, .json or .csv, prompts are one of these three or a probe file (.json), and "
        "self:TOKENS is what the model writes itself",
        name);
  }
  if (!folder && is_probe_file(path)) return {name, KeptKind::prompts, true, 0, extra};
  std::optional<KeptKind> kind;
  for_each_record(name, DataWants::anything, extra, [&](DataRecord&& record) {
    kind = kind_of(record);
    return false;
  });
  if (!kind) throw_format("{}: nothing to keep: it has no line that is not blank", name);
  return {name, *kind, false, 0, extra};
}

std::vector<std::vector<Message>> kept_prompts(const KeptSource& source) {
  std::vector<std::vector<Message>> prompts;
  if (source.probes) {
    for (Probe& p : read_probes(source.name).set.probes) {
      // Of a conversation with the model's own turns in it, what is asked first.
      if (!p.own_turns.empty()) p.messages.resize(p.own_turns.front().at);
      prompts.push_back(std::move(p.messages));
    }
    return prompts;
  }
  IgnoredKeys ignored;
  for_each_record(source.name, DataWants::prompt, source.extra, [&](DataRecord&& record) {
    ignored.add(record);
    prompts.push_back(std::move(record.messages));
    return true;
  });
  if (!ignored.empty()) log_info("--keep {}: {}", source.name, ignored.text());
  return prompts;
}

}  // namespace nibble
