// SPDX-License-Identifier: MIT
// Names that come from a browser, as folders: only what lies directly in the folder given at start.
#pragma once
#include <filesystem>
#include <string>

namespace nibble {

// A plain file name: no separator, no leading dot, nothing that a terminal would act on.
bool is_plain_name(const std::string& name);
// `base`/`name`, which is a real folder there and no link. Throws ApiError (404); `what` is said:
// "run".
std::filesystem::path folder_inside(const std::filesystem::path& base, const std::string& name,
                                    const char* what);

}  // namespace nibble
