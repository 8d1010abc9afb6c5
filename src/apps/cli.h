// SPDX-License-Identifier: MIT
// The whole program as a function, so that tests run it without a process.
#pragma once
#include <iosfwd>
#include <string>
#include <vector>

namespace nibble {

// `args` without the program's name. Returns the process exit code; never throws.
int run_cli(const std::vector<std::string>& args, std::istream& in, std::ostream& out,
            std::ostream& err);
int run_cli(const std::vector<std::string>& args, std::ostream& out, std::ostream& err);

// What `nibble <command> --help` prints.
std::string command_help(const std::string& command);

}  // namespace nibble
