// SPDX-License-Identifier: MIT
#include "serve/page/lesson_result.h"

#include "core/file.h"
#include "core/json.h"
#include "runlog/json/run_json.h"
#include "runlog/run_series.h"

namespace nibble {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

struct Count {
  int64_t good = 0, total = 0;
  void add(bool is_good) {
    good += is_good;
    ++total;
  }
};

Json count_json(const Count& c) { return {{"good", c.good}, {"total", c.total}}; }

}  // namespace

Json lesson_scores(const fs::path& run) {
  Count taught, kept, other;
  const std::vector<ReplyHistory> replies = read_replies(run);
  for (const ReplyHistory& h : replies) {
    const bool before = h.first.step == 0;
    if (h.group == "taught") taught.add(h.last.passed);
    if (h.group == "kept" && before) kept.add(h.last.text == h.first.text);
    if (h.group == "other" && before) other.add(h.last.text == h.first.text);
  }
  return {{"replies", replies_json(replies)},
          {"taught", count_json(taught)},
          {"kept", count_json(kept)},
          {"other", count_json(other)}};
}

bool write_measured_text(const fs::path& run, const fs::path& file) {
  std::string text;
  for (const ReplyHistory& h : read_replies(run)) {
    if (h.group == "taught" || h.first.step != 0 || h.first.text.empty()) continue;
    text += h.prompt + "\n" + h.first.text + "\n\n";
  }
  if (text.empty()) return false;
  replace_file(file, text);
  return true;
}

Json damage_json(const fs::path& check) {
  std::error_code ec;
  if (!fs::is_regular_file(check, ec)) return nullptr;
  const Json j = parse_json_or_discard<Json>(read_text_file(check, 64 << 20));
  if (!j.is_object() || !j.contains("checks") || !j["checks"].is_array()) return nullptr;
  for (const Json& c : j["checks"]) {
    if (!c.is_object() || c.value("check", "") != "text") continue;
    Json out = Json::object();
    for (const char* key :
         {"divergence", "divergence_error", "agreement", "base_loss", "loss", "tokens"}) {
      if (c.contains(key)) out[key] = c[key];
    }
    return out;
  }
  return nullptr;
}

}  // namespace nibble
