#!/bin/bash
# SPDX-License-Identifier: MIT
# Copies a binary and the libraries it needs beside the C library into a folder, with a starter
# script: runs on a machine that has none of our packages.
# usage: tools/bundle.sh BINARY FOLDER
set -euo pipefail
binary=$1 folder=$2
mkdir -p "$folder/lib"
cp "$binary" "$folder/$(basename "$binary").bin"
ldd "$binary" | awk '$2 == "=>" && $3 ~ /^\// {print $3}' |
  grep -vE '/(libc|libm|libpthread|libdl|librt|ld-linux[^/]*)\.so' |
  while read -r library; do cp -L "$library" "$folder/lib/"; done
cat > "$folder/$(basename "$binary")" <<'START'
#!/bin/bash
here=$(cd "$(dirname "$0")" && pwd)
LD_LIBRARY_PATH="$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" exec "$here/$(basename "$0").bin" "$@"
START
chmod +x "$folder/$(basename "$binary")"
