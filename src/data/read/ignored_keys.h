// SPDX-License-Identifier: MIT
// Keys that say nothing to a training, counted: nothing is left out silently.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "data/lines.h"

namespace nibble {

class IgnoredKeys {
 public:
  void add(const DataRecord& record);
  bool empty() const { return keys_.empty(); }
  // "keys that say nothing here are passed over: "id" in 200 lines, ..."
  std::string text() const;

 private:
  struct Key {
    std::string name;
    int64_t lines;
  };
  std::vector<Key> keys_;  // in the order in which they came
};

}  // namespace nibble
