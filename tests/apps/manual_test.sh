#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The manual pages through the programs that read them. Usage: manual_test.sh NIBBLE
set -euo pipefail
nibble=$(realpath "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$nibble" man --out-dir "$work"
failed=0
readers=
for command in $("$nibble" --help | sed -n '/^Commands:/,/^$/ s/^  \([a-z]*\) .*/\1/p'); do
  [ -s "$work/nibble-$command.1" ] || { echo "no page of $command"; failed=1; }
done
if command -v groff >/dev/null; then
  readers+=" groff"
  for page in "$work"/*.1; do
    warnings=$(groff -man -Tutf8 -ww -rLL=100n "$page" 2>&1 >"$work/text")
    [ -z "$warnings" ] || { echo "$warnings"; failed=1; }
  done
  groff -man -Tutf8 -P-cbou "$work/nibble-generate.1" > "$work/text"
  grep -q -- '--device auto|cpu|cuda|cuda:N' "$work/text" || { echo "no --device in the page"; failed=1; }
fi
if command -v man >/dev/null && man --help 2>&1 | grep -q -- --warnings; then
  readers+=" man"
  for page in "$work"/*.1; do
    warnings=$(LC_ALL=C.UTF-8 MANWIDTH=100 man --warnings -l "$page" 2>&1 >/dev/null)
    [ -z "$warnings" ] || { echo "$warnings"; failed=1; }
  done
fi
if command -v mandoc >/dev/null; then
  readers+=" mandoc"
  mandoc -Tlint -Wwarning "$work"/*.1 || failed=1
fi
[ -n "$readers" ] || { echo "neither groff nor man nor mandoc is installed"; exit 77; }
echo "read by$readers"
exit "$failed"
