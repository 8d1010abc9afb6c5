// SPDX-License-Identifier: MIT
// libFuzzer target: bytes as a run-config, read and applied to options of every kind.
#include <optional>

#include "apps/options/run_config.h"
#include "fuzz_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace nibble;
  const fuzz::MemoryFile file(data, size);
  std::string text;
  std::vector<std::string> several;
  std::optional<std::vector<int32_t>> ids;
  double number = 0;
  int64_t count = 0;
  bool flag = false;
  Fields fields;
  fields.add(text, {.flag = "--text", .help = ""});
  fields.add(several, {.flag = "--several", .help = ""});
  fields.add(ids, {.flag = "--ids", .help = ""});
  fields.add(number, {.flag = "--number", .help = ""});
  fields.add(count, {.flag = "--count", .help = ""});
  fields.add(flag, {.flag = "--flag", .help = ""});
  const auto explain = [](const std::string& name) { return name; };
  try {
    const RunConfig config = read_run_config(file.path());
    for (const ConfigStage& s : config.stages) {
      apply_config_keys(fields, s.keys, explain, UnknownKeys::skip);
    }
    apply_run_config(fields, config, config.command, explain);
    fields.to_toml();
  } catch (const FormatError&) {
  } catch (const UsageError&) {
  }
  return 0;
}
