// SPDX-License-Identifier: MIT
// Addresses of this machine's memory without the memory: a page is there once something is written
// to it, can be given back, and can be shown at several addresses.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace nibble {

size_t page_bytes();
// False: this system refuses what it might have to give later (vm.overcommit_memory=2), and then
// a page that is not there when it is written ends the program.
bool can_reserve_pages();
// How many ranges of addresses this system lets a process have.
int64_t most_mappings();

// A page has a name, the offset where it is shown at first, and keeps it wherever it is shown. All
// offsets and sizes are whole pages.
class ReservedPages {
 public:
  // All of it reads as zero. DeviceError where the system has no such range of addresses left.
  ReservedPages(size_t n_bytes, std::string_view what);
  ~ReservedPages();
  ReservedPages(const ReservedPages&) = delete;
  ReservedPages& operator=(const ReservedPages&) = delete;

  std::byte* data() const { return data_; }
  size_t bytes() const { return n_bytes_; }
  // From `at` on the pages named `name` and those that follow it. What was shown there before is
  // still there, by its name. DeviceError, and nothing has changed.
  void show(size_t at, size_t name, size_t n_bytes);
  // The memory of the pages of these names, which read as zero from now on.
  void give_back(size_t name, size_t n_bytes);
  size_t used_bytes() const;  // pages that are there

 private:
  void check(size_t offset, size_t n_bytes) const;
  std::byte* data_ = nullptr;
  size_t n_bytes_ = 0;
  int fd_ = -1;
};

}  // namespace nibble
