// SPDX-License-Identifier: MIT
#include "core/shipped_files.h"

namespace nibble {

namespace fs = std::filesystem;

fs::path this_program() {
  std::error_code ec;
  return fs::read_symlink("/proc/self/exe", ec);
}

std::vector<fs::path> shipped_places(const fs::path& program) {
  if (program.empty()) return {};
  const fs::path above = program.parent_path().parent_path();
  return {above / "share/nibble", above};
}

fs::path find_shipped_model(const fs::path& name, const fs::path& program) {
  // A name, not a way: "mini", never "../mini" or "a/mini".
  if (name.empty() || name != name.filename() || name == "." || name == "..") return {};
  for (const fs::path& place : shipped_places(program)) {
    const fs::path model = place / "models" / name;
    std::error_code ec;
    if (fs::exists(model / "config.json", ec) && fs::exists(model / "tokenizer.json", ec)) {
      return model;
    }
  }
  return {};
}

}  // namespace nibble
