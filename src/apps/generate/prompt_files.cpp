// SPDX-License-Identifier: MIT
#include "apps/generate/prompt_files.h"

#include <algorithm>

#include "core/error.h"
#include "core/json.h"
#include "core/log.h"
#include "data/read/data_files.h"
#include "data/read/ignored_keys.h"

namespace nibble {
namespace {

DataReader::Result read_question(const DataReader& reader, size_t unit, const std::string& name) {
  DataReader::Result r = reader.read(unit, DataWants::anything);
  if (!r.error.empty()) throw_format("{}:{}: {}", name, r.line, r.error);
  if (!r.record.messages.empty()) {
    const Role last = r.record.messages.back().role;
    if (last != Role::user && last != Role::tool) {
      throw_format("{}:{}: the last message is from '{}': there is nothing to answer", name, r.line,
                   role_name(last));
    }
  }
  return r;
}

AskedPrompt asked_of(DataReader::Result&& r) {
  return {std::move(r.record.messages), std::move(r.record.tools), std::move(r.record.text),
          std::to_string(r.line), r.line};
}

}  // namespace

AskedPrompt read_messages_file(const std::filesystem::path& file) {
  const std::string name = file.string();
  std::string text = read_data_text(file, WithHash::no).text;
  if (text.starts_with("\xef\xbb\xbf")) text.erase(0, 3);
  const size_t first = text.find_first_not_of(" \t\r\n");
  // The messages alone; lines keep their numbers.
  if (first != text.npos && text[first] == '[') text = "{\"messages\": " + text + "}";
  const DataReader reader(text, name, {DataFormat::json, DataUse::fine_tune});
  if (reader.units().size() != 1) {
    throw_format("{}: expected one conversation, found {}; --batch answers many", name,
                 reader.units().size());
  }
  DataReader::Result r = read_question(reader, 0, name);
  IgnoredKeys ignored;
  ignored.add(r.record);
  if (!ignored.empty()) log_info("{}: {}", name, ignored.text());
  if (r.record.messages.empty()) {
    throw_format("{}: a \"text\" is no conversation; --prompt-file with --raw continues it", name);
  }
  return asked_of(std::move(r));
}

std::vector<AskedPrompt> read_batch_file(const std::filesystem::path& file, ExtraKeys extra) {
  std::error_code no_folder;
  if (std::filesystem::is_directory(file, no_folder)) {
    throw_usage("--batch {}: this is a folder, and one file of prompts is needed", file.string());
  }
  const DataFile data = data_files(file, DataFormat::automatic, DataUse::fine_tune, extra).files[0];
  const std::string name = file.string();
  if (data.format == DataFormat::tsv) {
    throw_usage(
        "--batch {}: the lines of TSV have their answers already; prompts stand in .jsonl, .json "
        "or .csv",
        name);
  }
  const std::string text = read_data_text(file, WithHash::no).text;
  const DataReader reader(text, name, {data.format, DataUse::fine_tune});
  std::vector<AskedPrompt> out;
  IgnoredKeys ignored;
  for (size_t i = 0; i < reader.units().size(); ++i) {
    DataReader::Result r = read_question(reader, i, name);
    std::vector<std::string>& keys = r.record.ignored;
    const auto id = std::ranges::find(keys, "id");
    const bool named = id != keys.end();
    if (named) keys.erase(id);
    if (extra == ExtraKeys::refuse && !keys.empty()) {
      throw_format(
          "{}:{}: \"{}\" says nothing here, and --strict-data asks for nothing to be left "
          "out: remove it",
          name, r.line, keys.front());
    }
    ignored.add(r.record);
    out.push_back(asked_of(std::move(r)));
    if (named) {
      out.back().id = parse_json<nlohmann::ordered_json>(reader.line_of(i)).at("id").dump();
    }
  }
  if (out.empty()) throw_format("{}: no prompt in this file", name);
  if (!ignored.empty()) log_info("{}: {}", name, ignored.text());
  return out;
}

}  // namespace nibble
