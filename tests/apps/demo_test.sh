#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# tools/demo.sh with one small step and few probes: every command works, from a relative path, and
# the table compares identity before and after by the same rules.
# usage: demo_test.sh NIBBLE SOURCE_DIR
set -euo pipefail
nibble=$1 source=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
mkdir bin
cat >bin/nibble <<END
#!/usr/bin/env bash
# Less of everything; the self-test is about the old name, which one step does not change.
less=()
for argument in "\$@"; do
  case \$argument in
    300) argument=1 ;;
    32) argument=2 ;;
    12000) argument=200 ;;
    'F# 之神') argument=Nibble ;;
  esac
  less+=("\$argument")
done
if [ "\$1" = check ]; then less+=(--probe-max 4); fi
exec "$nibble" "\${less[@]}"
END
chmod +x bin/nibble

status=0
"$source/tools/demo.sh" bin/nibble out 1 --device cpu >output.txt 2>&1 || status=$?
fail() {
  cat output.txt
  printf 'demo_test.sh: %s\n' "$*"
  exit 1
}
# One step changes nothing: the goal is missed, and that is what the exit code says.
[ "$status" = 1 ] || fail "exit code $status instead of 1"
grep -q 'FAIL probes: .*identity/zh 0.0 %' output.txt || fail "the goal is not found to be missed"
grep -Eq '^identity +all +0 +4 +0\.0 % +0\.0 % +\+0\.0$' output.txt ||
  fail "identity before is not asked by the rules of the new identity"
grep -Eq '^identity +all +4 +4 +100\.0 %$' output.txt || fail "the base is not asked by its own rules"
grep -Eq '^retention +all +4 +4 +100\.0 % +100\.0 % +\+0\.0$' output.txt || fail "no retention before"
[ "$(grep -c -- '-> .' output.txt)" = 10 ] || fail "not five dialogues before and five after"
