// SPDX-License-Identifier: MIT
// What log_warning() says while a run goes on, for its record.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace nibble {

// What was said on this thread while it lives. What has been said is not said again.
class WarningCollector {
 public:
  WarningCollector();
  ~WarningCollector();
  WarningCollector(const WarningCollector&) = delete;
  WarningCollector& operator=(const WarningCollector&) = delete;
  const std::vector<std::string>& all() const { return all_; }

 private:
  friend bool collect_warning(std::string_view text);
  std::vector<std::string> all_;
  WarningCollector* outer_;
};

// Called by the log. False: it has been said while the collector of this thread lives.
bool collect_warning(std::string_view text);

}  // namespace nibble
