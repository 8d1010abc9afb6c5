// SPDX-License-Identifier: MIT
// What the server has done, as Prometheus reads it.
#pragma once
#include <span>
#include <string>

#include "serve/schedule/schedule_counts.h"

namespace nibble {

std::string metrics_text(const SchedulerCounts& counts);
// Of each of several replicas, named by its number and its device.
std::string replica_metrics_text(std::span<const SchedulerCounts> each,
                                 std::span<const std::string> devices);

}  // namespace nibble
