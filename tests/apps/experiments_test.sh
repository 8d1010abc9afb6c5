#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# tools/experiments.sh, as small as it goes: every table and plot is written, and a second call runs
# nothing again.
# usage: experiments_test.sh NIBBLE SOURCE_DIR
set -euo pipefail
nibble=$1 source=$2
script=$source/tools/experiments.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
  printf 'experiments_test.sh: %s\n' "$*"
  exit 1
}

! "$script" "$nibble" "$work/out" cpu huge 2>"$work/error" || fail "a size that does not exist is taken"
! "$script" "$nibble" "$work/out" cpu tiny tea 2>"$work/error" || fail "tea is taken for an experiment"
grep -q 'no experiment tea' "$work/error" || fail "the message does not name it: $(cat "$work/error")"
[ ! -e "$work/out" ] || fail "a refused call made its folder"

# A relative path: the script changes its folder.
mkdir "$work/bin"
ln -s "$nibble" "$work/bin/nibble"
cd "$work"
JOBS=2 "$script" bin/nibble out cpu tiny rules quantise shares >first.txt || {
  cat first.txt out/logs/*.txt
  fail "the first call failed"
}
# rows EXPERIMENT COUNT: the base and as many settings, each with a number in every column.
rows() {
  local table=out/tables/$1.md found
  found=$(grep -c '^| `' "$table") || fail "$table has no rows"
  [ "$found" = "$2" ] || fail "$table has $found rows, not $2"
  if grep '^| `' "$table" | grep -v '^| `\(base\|dense\)`' | grep '| - |'; then
    fail "$table lacks numbers"
  fi
}
rows rules 17
rows quantise 9
rows shares 6
grep -q '^| 0.01 |' out/tables/reach.md || fail "no table of what a step can reach"
for plot in loss rates shares; do
  grep -q '</svg>' "out/tables/$plot.svg" || fail "no plot $plot.svg"
done
python3 -c 'import json; assert all(r["state"] == "finished" for r in json.load(open("out/results.json")))' ||
  fail "a run did not end well"

JOBS=2 "$script" bin/nibble out cpu tiny rules quantise shares >second.txt || fail "the second call failed"
! grep -q ' s  ' second.txt || fail "the second call ran again: $(grep ' s  ' second.txt)"

mkdir docs
cp "$source"/docs/experiments/*.md docs
python3 "$source/tools/experiments.py" docs out docs >/dev/null
grep -q '^| `share-0.3` | 0.0 |' docs/ablations.md || fail "the documents are not filled"
