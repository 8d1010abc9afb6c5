#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# tools/lint.sh format          every source file is as clang-format 14 writes it (ctest `format`)
# tools/lint.sh fix             make it so
# tools/lint.sh tidy [FILE...]  clang-tidy over src/ or the files named; slow, so not a test.
#                               Needs a configured build: $NIBBLE_BUILD_DIR, or build/.
# Exit 77: the tool is absent or another version, nothing was checked.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

sources() { find src tests bench -name '*.h' -o -name '*.cpp' -o -name '*.js' 2>/dev/null | sort; }

# tool NAME: the version-14 binary of that name. Versions disagree on layout, so only one counts.
tool() {
  local candidate
  for candidate in "$1-14" "$1"; do
    if command -v "$candidate" >/dev/null && "$candidate" --version | grep -q 'version 14\.'; then
      echo "$candidate"
      return
    fi
  done
  echo "[  SKIPPED ] $1 14 is not installed" >&2
  exit 77
}

case ${1:-} in
  format)
    formatter=$(tool clang-format)
    sources | xargs "$formatter" --dry-run -Werror
    echo "format: ok"
    ;;
  fix)
    formatter=$(tool clang-format)
    sources | xargs "$formatter" -i
    ;;
  tidy)
    shift
    checker=$(tool clang-tidy)
    build=${NIBBLE_BUILD_DIR:-build}
    [ -f "$build/compile_commands.json" ] || {
      echo "tools/lint.sh: no $build/compile_commands.json; configure first" >&2
      exit 1
    }
    { [ $# -gt 0 ] && printf '%s\n' "$@" || find src -name '*.cpp' | sort; } |
      xargs -P "$(nproc)" -n 1 "$checker" -p "$build" --quiet
    echo "tidy: ok"
    ;;
  *)
    sed -n '3,7s/^# //p' "$0" >&2
    exit 2
    ;;
esac
