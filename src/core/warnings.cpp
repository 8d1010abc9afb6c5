// SPDX-License-Identifier: MIT
#include "core/warnings.h"

#include <algorithm>
#include <utility>

namespace nibble {
namespace {

constexpr size_t kMostWarnings = 100;  // a run that skips steps all the time says much
thread_local WarningCollector* collector = nullptr;

}  // namespace

WarningCollector::WarningCollector() : outer_(std::exchange(collector, this)) {}

WarningCollector::~WarningCollector() { collector = outer_; }

bool collect_warning(std::string_view text) {
  if (!collector) return true;
  if (std::ranges::find(collector->all_, text) != collector->all_.end()) return false;
  if (collector->all_.size() < kMostWarnings) collector->all_.emplace_back(text);
  return true;
}

}  // namespace nibble
