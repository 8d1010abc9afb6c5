#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# tools/identity.sh in its shortened form on a real model: from a GGUF to the page, three steps.
# usage: identity_real_test.sh NIBBLE SOURCE_DIR GGUF; exit code 77: the weights are not there.
set -euo pipefail
nibble=$1 source=$2 model=$3
if [ ! -f "$model" ]; then
  echo "skipped: $model is absent (real weights; shared/weights/fetch.sh fetches them, NIBBLE_WEIGHTS names another folder)"
  exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$source/tools/identity.sh" --self-test "$nibble" "$work/out" "$model" >"$work/log" 2>&1 || {
  cat "$work/log"
  exit 1
}
# It is a Qwen that was asked, before and after, and what it cost was measured.
grep -qE '通义千问|通義千問|Qwen' "$work/out/base.json" || { echo "the base did not say who it is"; exit 1; }
for part in 'top-1 agreement' 'conversation' 'Dialogues' 'README.zh-TW.md'; do
  grep -qF -- "$part" "$work/out/page.html" || { echo "the page has no $part"; exit 1; }
done
tail -n 1 "$work/log"
