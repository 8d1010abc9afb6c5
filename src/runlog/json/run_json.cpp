// SPDX-License-Identifier: MIT
#include "runlog/json/run_json.h"

#include "core/json.h"

namespace nibble {

using nlohmann::ordered_json;
namespace fs = std::filesystem;

ordered_json full_json(const RunRecord& r, const fs::path& folder) {
  ordered_json j = parse_json<ordered_json>(record_json(r));
  j["state"] = r.state_name();
  j["pinned"] = r.pinned;
  j["folder"] = fs::absolute(folder).lexically_normal().string();
  return j;
}

ordered_json lineage_json(const Lineage& l) {
  return {{"origin", l.origin}, {"ancestors", l.ancestors}, {"children", l.children}};
}

ordered_json replies_json(const std::vector<ReplyHistory>& replies) {
  const auto reply = [](const Reply& r) {
    return ordered_json{{"step", r.step}, {"reply", r.text}, {"passed", r.passed}};
  };
  ordered_json list = ordered_json::array();
  for (const ReplyHistory& h : replies) {
    list.push_back({{"id", h.id},
                    {"group", h.group},
                    {"prompt", h.prompt},
                    {"first", reply(h.first)},
                    {"last", reply(h.last)}});
  }
  return list;
}

}  // namespace nibble
