#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# tools/identity.sh: the whole way on the mini model, from a Hugging Face directory, and what it
# says when something is missing.
# usage: identity_test.sh NIBBLE SOURCE_DIR
set -euo pipefail
nibble=$1 source=$2
script=$source/tools/identity.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# refused PART ARGUMENTS...: exit code 2 and a message with PART; nothing may have been made.
refused() {
  local part=$1 code=0
  shift
  "$script" "$@" >"$work/output" 2>&1 || code=$?
  if [ "$code" != 2 ] || ! grep -qF -- "$part" "$work/output"; then
    cat "$work/output"
    printf 'expected exit code 2 and "%s", got exit code %s: %s\n' "$part" "$code" "$*"
    exit 1
  fi
}
mini=$source/models/mini
refused usage "$nibble"
refused 'unknown option' --nothing "$nibble" "$mini/mini.dat" "$work/out"
refused 'is no program' "$work/no-nibble" "$mini/mini.dat" "$work/out"
refused 'there is no model' "$nibble" "$work/no-model" "$work/out"
refused 'there is no folder' --sets "$work/none" "$nibble" "$mini/mini.dat" "$work/out"
mkdir "$work/bare"
cp "$mini/mini.dat" "$work/bare"
refused 'no config.json' "$nibble" "$work/bare/mini.dat" "$work/out"
cp "$mini/config.json" "$work/bare"
refused 'no tokenizer.json' "$nibble" "$work/bare/mini.dat" "$work/out"
cp "$mini/tokenizer.json" "$work/bare"
head -c 5000 "$mini/mini.dat" >"$work/bare/short.dat"
refused 'not a sound weight file' "$nibble" "$work/bare/short.dat" "$work/out"
refused 'is not empty' "$nibble" "$mini/mini.dat" "$work/bare"
[ ! -e "$work/out" ] || { echo "a refused run made its folder"; exit 1; }

here=$source/models/qwen
hash=$(sha256sum <"$here/probes.json")
grep -q "${hash%% *}" "$here/README.md" || { echo "README.md has another hash than probes.json"; exit 1; }

"$nibble" convert "$mini/mini.dat" "$work/hf" --quant none --quiet
"$script" --self-test "$nibble" "$work/out" "$work/hf"
[ -s "$work/out/base/nvfp4.dat" ] || { echo "nothing was converted"; exit 1; }
for part in 'top-1 agreement' 'conversation' 'Dialogues' 'README.zh-TW.md'; do
  grep -qF -- "$part" "$work/out/page.html" || { echo "the page has no $part"; exit 1; }
done
