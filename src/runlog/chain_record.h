// SPDX-License-Identifier: MIT
// chain.json: what became of the stages of a chain.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "runlog/run_record.h"

namespace nibble {

struct StageRecord {
  std::string name, command;
  std::string state = "waiting";  // or running, finished, failed, interrupted
  std::string settings;           // of the last attempt, without what changes no result
  std::vector<std::string> runs;  // names of the run folders, one for each attempt
  std::vector<RunFile> files;     // of the last attempt
  std::string output;             // what --model takes
  int exit_code = 0;
};

struct ChainRecord {
  std::string name, file;
  RunStatus process;  // pid, pid_start, host, started_utc, updated_utc, state
  std::vector<StageRecord> stages;
};

std::string chain_json(const ChainRecord& record);
// Throws FormatError for a file that is not one.
ChainRecord read_chain(const std::filesystem::path& file);

// The settings that make a difference to what comes out, of Fields::to_toml.
std::string settings_that_matter(const std::string& toml);
// Whether the stage is done with these settings, and all its files are what they were.
bool still_finished(const StageRecord& stage, const std::string& settings);

}  // namespace nibble
