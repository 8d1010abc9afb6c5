// SPDX-License-Identifier: MIT
// What the server has done, as Prometheus reads it.
#pragma once
#include <string>

#include "serve/schedule/scheduler.h"

namespace nibble {

std::string metrics_text(const SchedulerCounts& counts);

}  // namespace nibble
