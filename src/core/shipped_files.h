// SPDX-License-Identifier: MIT
// Files that come with nibble, found from where the program itself lies: so a folder that was
// unpacked or moved works without being told.
#pragma once
#include <filesystem>
#include <vector>

namespace nibble {

// Where they may be: ../share/nibble of an installed program, the source tree of one that was built
// in a folder of it.
std::vector<std::filesystem::path> shipped_places(const std::filesystem::path& program);
std::filesystem::path this_program();  // "" where /proc does not say

// "mini": the folder of a model that comes with nibble; empty when it is not there.
std::filesystem::path find_shipped_model(const std::filesystem::path& name,
                                         const std::filesystem::path& program = this_program());

}  // namespace nibble
