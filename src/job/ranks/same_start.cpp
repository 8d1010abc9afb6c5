// SPDX-License-Identifier: MIT
#include "job/ranks/same_start.h"

#include <sstream>

#include "comm/process_ranks.h"
#include "core/error.h"
#include "core/json.h"

namespace nibble {

StartFacts start_facts(const TrainJob& job, const TrainInputs& in, const RunIdentity& identity) {
  StartFacts facts(identity.begin(), identity.end());
  facts["nibble"] = job.program;
  facts["weights"] = source_fingerprint(*in.source);
  facts["config.json"] = in.config_sha256.substr(0, 16);
  facts["tokenizer.json"] = in.tokenizer_sha256.substr(0, 16);
  std::istringstream lines(job.config);
  for (std::string line; std::getline(lines, line);) {
    const size_t equals = line.find(" = ");
    if (equals != line.npos) facts["--" + line.substr(0, equals)] = line.substr(equals + 3);
  }
  return facts;
}

void check_same_start(Comm& comm, const StartFacts& facts) {
  comm.at("comparing versions, settings and files");
  using Json = nlohmann::json;  // names of files may be any bytes
  const std::vector<std::string> all =
      comm.gather_texts(Json(facts).dump(-1, ' ', false, Json::error_handler_t::replace));
  std::string differences;
  for (int r = 1; r < comm.size(); ++r) {
    const StartFacts theirs = parse_json<Json>(all[size_t(r)]).get<StartFacts>();
    const StartFacts ours = parse_json<Json>(all[0]).get<StartFacts>();
    const auto value = [](const StartFacts& f, const std::string& key) {
      const auto at = f.find(key);
      return at == f.end() ? std::string("nothing") : at->second;
    };
    StartFacts keys = ours;
    keys.insert(theirs.begin(), theirs.end());
    for (const auto& [key, any] : keys) {
      if (value(ours, key) == value(theirs, key)) continue;
      differences +=
          fmt::format("\n  {}: rank 0 on {} has {}, rank {} on {} has {}", key, comm.host(0),
                      value(ours, key), r, comm.host(r), value(theirs, key));
    }
  }
  if (differences.empty()) return;
  ranks_are_done(true);  // all of them have come here
  if (!comm.leads()) throw UsageError("");
  throw_usage("the ranks were not started for the same run:{}", differences);
}

}  // namespace nibble
