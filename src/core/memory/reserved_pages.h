// SPDX-License-Identifier: MIT
// Addresses of this machine's memory without the memory: a page is there once something is written
// to it, and can be given back.
#pragma once
#include <string_view>

#include "core/arena.h"

namespace nibble {

size_t page_bytes();
// All of it reads as zero. DeviceError where the system has no such range of addresses left.
Buffer reserve_pages(size_t n_bytes, std::string_view what);
// Whole pages of such a buffer, which read as zero from now on. Pages never written cost nothing.
void give_back_pages(std::byte* begin, size_t n_bytes);

}  // namespace nibble
