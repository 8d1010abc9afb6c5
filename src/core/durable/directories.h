// SPDX-License-Identifier: MIT
// Directories that are still there after a power cut.
#pragma once
#include <filesystem>

namespace nibble {

// Flushes the entries of a directory: files made, renamed or removed in it. Throws FormatError.
void sync_directory(const std::filesystem::path& directory);
// Of the directory that holds `path`.
void sync_parent(const std::filesystem::path& path);
// Makes `directory` and what is missing above it; each new one is flushed. Throws FormatError.
void make_directories(const std::filesystem::path& directory);
// The directory that holds `path`; "." for a bare name.
std::filesystem::path parent_directory(const std::filesystem::path& path);
// Whether `fd` is still what has this name (a link itself, not what it leads to).
bool is_open_at(int fd, const std::filesystem::path& path);

}  // namespace nibble
