#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Usage: symbols_test.sh LIBRARY HEADER: the library exports what the header declares, no more.
set -euo pipefail
exported=$(nm -D --defined-only "$1" | awk '{print $3}' | sed 's/@.*//' | sort)
declared=$(grep -oE 'NIBBLE_API [^(]*' "$2" | grep -oE 'nibble_[a-z_]+$' | sort)
diff <(echo "$declared") <(echo "$exported") || { echo "< declared, > exported"; exit 1; }
echo "$declared" | wc -l
# The header is C's.
if command -v gcc >/dev/null; then gcc -std=c99 -Wall -Wextra -Werror -fsyntax-only -x c "$2"; fi
