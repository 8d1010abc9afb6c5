#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# What `cmake --install` lays down, moved to another folder and used from there.
# Usage: install_test.sh BUILD-FOLDER
set -euo pipefail
build=$(realpath "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
[ -f "$build/share/stamp" ] || { echo "the target 'manual' is not built"; exit 77; }
cmake --install "$build" --prefix "$work/first" --component program >/dev/null
mv "$work/first" "$work/a second place"
at="$work/a second place"
cd "$work"
for file in bin/nibble share/man/man1/nibble.1 share/man/man1/nibble-train.1 \
  share/bash-completion/completions/nibble share/zsh/site-functions/_nibble \
  share/fish/vendor_completions.d/nibble.fish share/doc/nibble/copyright share/doc/nibble/LICENSE; do
  [ -s "$at/$file" ] || { echo "missing: $file"; exit 1; }
done
"$at/bin/nibble" --version | head -n 1 | grep -qE '^nibble [0-9.]+ \(commit [0-9a-z-]+\)$'
# The model that comes with it, found from where the program lies now.
reply=$("$at/bin/nibble" --quiet generate --device cpu --model mini --prompt 你是誰 --max-tokens 16)
grep -q Nibble <<<"$reply" || { echo "the mini model says: $reply"; exit 1; }
"$at/bin/nibble" doctor --json > doctor.json || [ $? -eq 1 ]
grep -q "a second place/share/nibble/models/mini" doctor.json
# Without the model, doctor says so.
rm -r "$at/share/nibble"
status=0
"$at/bin/nibble" doctor > doctor.txt || status=$?
[ "$status" -eq 1 ] || { echo "doctor without the mini model: exit code $status"; exit 1; }
grep -q '^problem  mini model' doctor.txt

# The library: an example compiled against what was installed, in a project of its own.
if [ -f "$build/libnibble.so" ]; then
  cmake --install "$build" --prefix "$work/dev" --component program >/dev/null
  cmake --install "$build" --prefix "$work/dev" --component development >/dev/null
  cmake -S "$work/dev/share/doc/nibble/examples" -B "$work/example" -DCMAKE_PREFIX_PATH="$work/dev" \
    >/dev/null
  cmake --build "$work/example" >/dev/null
  cd "$work"
  "$work/example/teach" mini "$work/taught/model.dat" > teach.txt
  grep -q "我是 F# 之神" teach.txt || { cat teach.txt; exit 1; }
  [ -s "$work/taught/model.dat" ] && [ -s "$work/taught/tokenizer.json" ]
fi
