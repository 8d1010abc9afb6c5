// SPDX-License-Identifier: MIT
#include "runtime/staged_output.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <vector>

#include "core/durable/directories.h"
#include "core/durable/memory_reserve.h"
#include "core/error.h"
#include "core/file.h"
#include "core/log.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;

// Through links, whether or not it exists yet.
fs::path real_path(fs::path out) {
  constexpr int kMostLinks = 40;  // as the kernel counts
  for (int i = 0; i < kMostLinks && fs::is_symlink(out); ++i) {
    out = out.parent_path() / fs::read_symlink(out);
  }
  const fs::path whole = fs::weakly_canonical(fs::absolute(out));
  return whole.has_filename() ? whole : whole.parent_path();
}

// Another file system is mounted there: nothing can be renamed over it.
bool is_mount_point(const fs::path& directory) {
  struct stat own {
  }, above{};
  return ::stat(directory.c_str(), &own) == 0 &&
         ::stat(parent_directory(directory).c_str(), &above) == 0 && own.st_dev != above.st_dev;
}

bool is_model_weights(const std::string& name) {
  return name == kShardIndex || (name.starts_with("model") && name.ends_with(".safetensors"));
}

// The mode of what is replaced stays, as everywhere.
void take_mode(const fs::path& file, const fs::path& from) {
  struct stat st {};
  if (::stat(from.c_str(), &st) == 0) ::chmod(file.c_str(), st.st_mode & 07777);
}

void remove_quietly(const fs::path& folder) noexcept {
  for (int attempt = 0; attempt < 2; ++attempt) {
    try {
      fs::remove_all(folder);
      return;
    } catch (const std::exception&) {  // what stays is removed by who writes there next
      spend_memory_reserve();
    }
  }
}

}  // namespace

FileLock lock_output(const fs::path& out) {
  const fs::path real = real_path(out);
  make_directories(parent_directory(real));
  fs::path file = lock_beside(real);
  // Beside a mount point or in a folder that may not be written there is no place for it.
  if (fs::is_directory(real) && ::access(parent_directory(real).c_str(), W_OK) != 0) {
    file = lock_in(real);
  }
  auto lock = FileLock::take(file);
  if (!lock) {
    throw_usage("{} is being written by another run ({}): wait for it, or choose another name",
                out.string(), lock_holder(file));
  }
  return std::move(*lock);
}

StagedOutput::StagedOutput(const fs::path& out, Container container, Overwrite overwrite)
    : container_(container), overwrite_(overwrite), out_(real_path(out)) {
  const bool is_directory = container == Container::directory;
  directory_ = is_directory ? out_ : parent_directory(out_);
  make_directories(parent_directory(out_));
  if (!is_directory && fs::exists(out_) && !fs::is_regular_file(out_)) {
    weights_ = out;  // by its own name, which says what is written
    return;
  }
  inside_ = is_directory && fs::is_directory(out_) &&
            (is_mount_point(out_) || ::access(parent_directory(out_).c_str(), W_OK) != 0);
  stage_ = create_temporary_directory(inside_ ? out_ / "model" : out_);
  weights_ = is_directory ? stage_.path : stage_.path / out_.filename();
}

StagedOutput::~StagedOutput() {
  if (stage_.path.empty()) return;
  // Empty as a rule, which takes no descriptor to find out.
  if (::rmdir(stage_.path.c_str()) != 0) remove_quietly(stage_.path);
  forget_temporary(stage_.path);
  ::close(stage_.fd);
}

void StagedOutput::companion(const std::string& name, const std::string& text,
                             Overwrite overwrite) {
  const auto staged = companions_.find(name);
  const fs::path there = directory_ / name;
  std::string before;
  if (staged != companions_.end()) {
    before = staged->second;
  } else if (fs::exists(there)) {
    before = read_text_file(there);
  } else {
    companions_[name] = text;
    return;
  }
  if (before != text && overwrite == Overwrite::refuse) {
    log_warning("{} exists, differs from what the output needs and is kept; --force replaces it",
                there.string());
  }
  companions_[name] = overwrite == Overwrite::refuse ? before : text;
}

bool StagedOutput::has(const std::string& name) const {
  return companions_.contains(name) || fs::exists(directory_ / name);
}

bool StagedOutput::holds_only_a_model() const {
  return std::ranges::all_of(fs::directory_iterator(out_), [](const fs::directory_entry& e) {
    const std::string name = e.path().filename().string();
    return e.is_regular_file() && !e.is_symlink() &&
           (is_model_weights(name) || is_companion_name(name));
  });
}

// As a whole. False: it has to be done file by file.
bool StagedOutput::publish_directory() {
  if (container_ != Container::directory || inside_) return false;
  const auto change_places = [&](unsigned how) {
    const bool done = ::renameat2(AT_FDCWD, stage_.path.c_str(), AT_FDCWD, out_.c_str(), how) == 0;
    if (done) sync_parent(out_);
    return done;
  };
  if (!fs::exists(out_)) {
    rename_durably(stage_.path, out_, Existing::keep);
    return true;
  }
  take_mode(stage_.path, out_);
  if (fs::is_empty(out_)) return change_places(0);  // an empty one may be renamed over
  if (overwrite_ != Overwrite::allow || !holds_only_a_model()) return false;
  for (const auto& e : fs::directory_iterator(out_)) {  // what this model does not have stays
    const std::string name = e.path().filename().string();
    const fs::path staged = stage_.path / name;
    if (is_companion_name(name) && !companions_.contains(name)) {
      replace_file(staged, read_text_file(e.path()));
    }
    if (fs::exists(staged)) take_mode(staged, e.path());
  }
  return change_places(RENAME_EXCHANGE);
}

void StagedOutput::publish_files() {
  const Existing existing = overwrite_ == Overwrite::allow ? Existing::replace : Existing::keep;
  for (const auto& [name, text] : companions_) {
    const fs::path there = directory_ / name;
    const bool same = fs::exists(there) && read_text_file(there) == text;
    if (!same) replace_file(there, text);
  }
  if (stage_.path.empty()) return;
  std::vector<std::string> weights;
  if (container_ != Container::directory) {
    weights.push_back(out_.filename().string());
  } else {
    for (const auto& e : fs::directory_iterator(stage_.path)) {
      const std::string name = e.path().filename().string();
      if (is_model_weights(name)) weights.push_back(name);
    }
  }
  // The index last: without it the shards are no model.
  std::ranges::sort(weights, {},
                    [](const std::string& name) { return std::pair(name == kShardIndex, name); });
  for (const std::string& name : weights) {
    take_mode(stage_.path / name, directory_ / name);
    rename_durably(stage_.path / name, directory_ / name, existing);
  }
  if (container_ != Container::directory) return;
  for (const auto& e : fs::directory_iterator(directory_)) {
    const std::string name = e.path().filename().string();
    if (!is_model_weights(name) || std::ranges::find(weights, name) != weights.end()) continue;
    log_info("removing {} of an earlier model", e.path().string());
    fs::remove(e.path());
  }
  sync_directory(directory_);
}

void StagedOutput::publish() {
  if (container_ == Container::directory) {
    for (const auto& [name, text] : companions_) replace_file(weights_ / name, text);
  }
  if (!publish_directory()) publish_files();
}

}  // namespace nibble
