// SPDX-License-Identifier: MIT
// libFuzzer target: bytes as the records of a run. The first byte says which file of a run folder
// they are; the others stay good. Whatever is read is shown in every way there is.
#include <cstdlib>
#include <fstream>
#include <string>

#include "core/error.h"
#include "core/text/visible.h"
#include "runlog/chain_record.h"
#include "runlog/run_report.h"
#include "runlog/run_tables.h"
#include "runlog/run_view.h"

namespace {

namespace fs = std::filesystem;
using namespace nibble;

constexpr const char* kFiles[] = {"status.json",   "run.json",    "metrics.jsonl",
                                  "probes.jsonl",  "config.toml", "memory.json",
                                  "replies.jsonl", "chain.json",  "command.txt"};

const fs::path& folder() {
  static const fs::path path = [] {
    char name[] = "/dev/shm/fuzz-runs-XXXXXX";
    if (!::mkdtemp(name)) std::abort();
    static const std::string kept = name;
    std::atexit([] { fs::remove_all(kept); });
    return fs::path(kept) / "run";
  }();
  return path;
}

void write(const std::string& name, std::string_view text) {
  std::ofstream(folder() / name, std::ios::binary).write(text.data(), std::streamsize(text.size()));
}

void show() {
  const RunRecord record = read_record(folder());
  const std::vector<ReplyHistory> replies = read_replies(folder());
  const Lineage lineage = lineage_of(record, {});
  const std::string shown = runs_table({record}) + run_text(record, lineage, replies) +
                            run_markdown(record, lineage, replies) +
                            comparison_text(compare_runs({record, record}));
  if (visible_text(shown) != shown) __builtin_trap();  // nothing a terminal would obey
  record_json(record);
  report_html(read_report(folder()));
  RunView view(folder());
  view.refresh();
  view.lines();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  fs::remove_all(folder());
  fs::create_directories(folder());
  write("status.json",
        R"({"state":"finished","pid":1,"steps":3,"last":{"step":3,"loss":1.5},"host":"h"})");
  write("metrics.jsonl", "{\"step\":1,\"loss\":2.5,\"tokens\":7}\n");
  write(kFiles[data[0] % std::size(kFiles)], {reinterpret_cast<const char*>(data) + 1, size - 1});
  try {
    show();
  } catch (const FormatError&) {
  }
  try {
    if (fs::exists(folder() / "chain.json")) chain_json(read_chain(folder() / "chain.json"));
  } catch (const FormatError&) {
  }
  return 0;
}
