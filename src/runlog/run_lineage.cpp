// SPDX-License-Identifier: MIT
#include "runlog/run_lineage.h"

#include <algorithm>

namespace nibble {
namespace {

// Whether `later` read what `earlier` wrote.
bool made_from(const RunRecord& later, const RunRecord& earlier) {
  if (later.name == earlier.name || !(earlier.status.started_utc < later.status.started_utc)) {
    return false;
  }
  for (const RunFile* in : later.with_role("weights")) {
    for (const RunFile* out : earlier.with_role("output")) {
      if (!in->sha256.empty() && in->sha256 == out->sha256) return true;
    }
  }
  return false;
}

// The last run before it that wrote its input: the same bytes may have been written twice.
const RunRecord* parent_of(const RunRecord& run, const std::vector<RunRecord>& all) {
  const RunRecord* parent = nullptr;
  for (const RunRecord& r : all) {
    if (!made_from(run, r)) continue;
    if (!parent || parent->status.started_utc < r.status.started_utc) parent = &r;
  }
  return parent;
}

}  // namespace

Lineage lineage_of(const RunRecord& run, const std::vector<RunRecord>& all) {
  Lineage lineage;
  const RunRecord* oldest = &run;
  while (const RunRecord* parent = parent_of(*oldest, all)) {  // ends: each started before the last
    lineage.ancestors.push_back(parent->name);
    oldest = parent;
  }
  const auto weights = oldest->with_role("weights");
  if (!weights.empty()) lineage.origin = weights.front()->path;
  for (const RunRecord& r : all) {
    const RunRecord* parent = parent_of(r, all);
    if (parent && parent->name == run.name) lineage.children.push_back(r.name);
  }
  return lineage;
}

}  // namespace nibble
