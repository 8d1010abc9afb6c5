// SPDX-License-Identifier: MIT
// Runs a command line in this process.
#pragma once
#include <sstream>
#include <string>
#include <vector>

#include "apps/cli.h"
#include "support/text.h"

namespace nibble::test {

struct CliResult {
  int code;
  std::string out, err;
};

inline CliResult cli(const std::vector<std::string>& args, const std::string& input = {}) {
  std::istringstream in(input);
  std::ostringstream out, err;
  std::vector<std::string> all = {"--quiet"};
  all.insert(all.end(), args.begin(), args.end());
  const int code = run_cli(all, in, out, err);
  return {code, out.str(), err.str()};
}

}  // namespace nibble::test
