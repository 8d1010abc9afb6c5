#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Instructions an element of the CPU backend's main kernels, counted by qemu-user: NEON beside AVX2, and
# whatever else two builds are. Usage: bench/op_instructions.sh QEMU PROGRAM [QEMU PROGRAM]...
#   bench/op_instructions.sh "qemu-aarch64 -L build-aarch64/sysroot" build-aarch64/bench/op_instructions \
#     "qemu-x86_64 -cpu max" build/bench/op_instructions
# Twelve runs less two, divided by ten and by the elements of one. Needs gcc and qemu-user; exits with 77 without.
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
command -v qemu-aarch64 >/dev/null || { echo "op_instructions.sh: skipped: apt-get install qemu-user"; exit 77; }
if [ $# -lt 2 ] || [ $(($# % 2)) -ne 0 ]; then
  sed -n '3,8s/^# \{0,1\}//p' "$0"
  exit 2
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
gcc -shared -fPIC -O2 -o "$folder/libcount.so" "$here/count_plugin.c"

# counted QEMU PROGRAM CASE REPEATS: its output's first line, then the instructions.
counted() {
  # shellcheck disable=SC2086  # QEMU is a command with arguments
  $1 -plugin "$folder/libcount.so" -d plugin -D "$folder/count" "$2" "$3" "$4"
  sed -n 's/^instructions //p' "$folder/count"
}

printf '| case'; for ((i = 1; i < $#; i += 2)); do printf ' | %s' "${!i%% *}"; done; printf ' | an element is |\n'
"${@: -1}" list | while read -r name; do
  printf '| %s' "$name"
  for ((i = 1; i < $#; i += 2)); do
    program=$((i + 1))
    mapfile -t few < <(counted "${!i}" "${!program}" "$name" 2)
    mapfile -t many < <(counted "${!i}" "${!program}" "$name" 12)
    elements=${few[0]%% *}
    awk -v a="${few[1]}" -v b="${many[1]}" -v n="$elements" 'BEGIN { printf " | %.3f", (b - a) / 10 / n }'
  done
  printf ' | %s |\n' "${few[0]#* }"
done
