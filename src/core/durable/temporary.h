// SPDX-License-Identifier: MIT
// What is not finished yet lies beside its target under a random name, and is locked (flock) by
// the program that writes it: one whose lock is free was left by a program that was killed.
#pragma once
#include <filesystem>
#include <string_view>

namespace nibble {

struct Temporary {
  std::filesystem::path path;
  int fd = -1;  // open and locked; for writing where it is a file
};
// Beside `target`: "model.dat.0123456789abcdef.nibble-tmp". Never opens what is there already, nor
// through a link. Also removes what killed programs left there, once for each directory. Throws
// FormatError.
Temporary create_temporary_file(const std::filesystem::path& target);
Temporary create_temporary_directory(const std::filesystem::path& target);
bool is_temporary_name(std::string_view name);

// Between these two a signal takes the temporary along. A directory: after what is in it.
void remember_temporary(const std::filesystem::path& path);
void forget_temporary(const std::filesystem::path& path);
// Removes what is remembered. Safe to call in a signal handler, which is what it is for: an
// interrupted program leaves nothing half-written behind.
void remove_temporary_files() noexcept;

// Removes what killed programs left in `directory`; what a live one writes stays. Never throws.
void remove_leftovers(const std::filesystem::path& directory) noexcept;

}  // namespace nibble
