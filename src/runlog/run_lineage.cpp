// SPDX-License-Identifier: MIT
#include "runlog/run_lineage.h"

#include <algorithm>

namespace nibble {
namespace {

bool began_before(const RunRecord& earlier, const RunRecord& later) {
  return later.name != earlier.name && earlier.status.started_utc < later.status.started_utc;
}

bool known_and_equal(const std::string& a, const std::string& b) { return !a.empty() && a == b; }

// Whether `later` read the very file that `earlier` wrote, and it still was what that had written.
bool read_output_of(const RunRecord& later, const RunRecord& earlier) {
  for (const RunFile* in : later.with_role("weights")) {
    for (const RunFile* out : earlier.with_role("output")) {
      const bool unlike = !in->sha256.empty() && !out->sha256.empty() && in->sha256 != out->sha256;
      if (in->path == out->path && !unlike) return true;
    }
  }
  return false;
}

// Whether `later` read, from a place no run wrote to, bytes that only `earlier` can have made: a
// run that changed nothing made none.
bool read_bytes_of(const RunRecord& later, const RunRecord& earlier) {
  for (const RunFile* in : later.with_role("weights")) {
    for (const RunFile* out : earlier.with_role("output")) {
      if (!known_and_equal(in->sha256, out->sha256)) continue;
      const auto same = [&](const RunFile* f) { return f->sha256 == out->sha256; };
      if (std::ranges::none_of(earlier.with_role("weights"), same)) return true;
    }
  }
  return false;
}

// The last run before it that wrote the file it read; where none wrote that file, it may have been
// moved or copied, and the last that wrote such bytes made it.
const RunRecord* parent_of(const RunRecord& run, const std::vector<RunRecord>& all) {
  const RunRecord *by_path = nullptr, *by_bytes = nullptr;
  const auto take = [](const RunRecord*& parent, const RunRecord& r) {
    if (!parent || parent->status.started_utc < r.status.started_utc) parent = &r;
  };
  for (const RunRecord& r : all) {
    if (!began_before(r, run)) continue;
    if (read_output_of(run, r)) take(by_path, r);
    if (read_bytes_of(run, r)) take(by_bytes, r);
  }
  return by_path ? by_path : by_bytes;
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
