// SPDX-License-Identifier: MIT
// A model on its way to disk: weights, config.json and the tokenizer's files are written into a
// folder of their own beside the output, and get their places when all of them are whole.
#pragma once
#include <filesystem>
#include <map>
#include <string>

#include "core/durable/file_lock.h"
#include "core/durable/temporary.h"
#include "runtime/output_files.h"

namespace nibble {

// One program at a time writes an output. Makes the missing folders above it. Throws UsageError
// when another does.
FileLock lock_output(const std::filesystem::path& out);

class StagedOutput {
 public:
  // `out` as check_output() allowed it, and locked.
  StagedOutput(const std::filesystem::path& out, Container container, Overwrite overwrite);
  ~StagedOutput();  // what was not published goes
  StagedOutput(const StagedOutput&) = delete;
  StagedOutput& operator=(const StagedOutput&) = delete;

  // Where the weights are to be written: a file, or a directory that exists.
  const std::filesystem::path& weights() const { return weights_; }
  // The directory that will hold weights and companions.
  const std::filesystem::path& directory() const { return directory_; }

  // A file beside the weights. One that is there already is replaced with Overwrite::allow and
  // otherwise kept, which a warning says when it differs.
  void companion(const std::string& name, const std::string& text, Overwrite overwrite);

  // Whether such a file will be there.
  bool has(const std::string& name) const;

  // A new directory appears as a whole, and one that holds nothing but a model is replaced as a
  // whole; elsewhere the companions come first and the weights last. Throws FormatError when the
  // output has appeared meanwhile and may not be replaced.
  void publish();

 private:
  bool holds_only_a_model() const;
  bool publish_directory();
  void publish_files();

  Container container_;
  Overwrite overwrite_;
  std::filesystem::path out_, directory_, weights_;
  Temporary stage_;      // no path: a device or a pipe, written to directly
  bool inside_ = false;  // in the output directory, where nothing can be made beside it
  std::map<std::string, std::string> companions_;
};

}  // namespace nibble
