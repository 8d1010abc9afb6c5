// SPDX-License-Identifier: MIT
// Memory that is kept back, so that running out of it ends in a message and not in a crash. Tearing
// down takes memory, too: a JSON value's destructor allocates, and may not throw.
#pragma once

namespace nibble {

// From now on a failing `new` is given what was kept back: once for the work in progress, and once
// more for what unwinds after that. Beyond it std::bad_alloc is thrown, as without a reserve; where
// it may not be thrown, the process says that memory ran out and ends with exit code 4.
void keep_memory_reserve();
// Gives all of it back at once: for those who tidy up after an error, with calls that ask nobody.
void spend_memory_reserve() noexcept;

}  // namespace nibble
