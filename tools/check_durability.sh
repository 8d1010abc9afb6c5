#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Every failing call and every power cut, in full (docs/reliability.md); ctest has a sample.
# usage: tools/check_durability.sh BUILD FOLDER [PARTS]
# PARTS at once (default: the processors); takes about an hour on eight.
set -euo pipefail
build=$(realpath "$1") parts=${3:-$(nproc)}
mkdir -p "$2"
folder=$(realpath "$2")
source=$(cd "$(dirname "$0")/.." && pwd)
arguments=("$build/nibble" "$build/tests/faults/faulty_calls.so" "$source")
pids=()
for ((i = 1; i <= parts; ++i)); do
  python3 "$source/tests/faults/run_faults.py" "${arguments[@]}" "$folder/faults-$i" \
    --malloc 300 --part "$i/$parts" >"$folder/faults-$i.log" 2>&1 &
  pids+=($!)
done
status=0
python3 "$source/tests/faults/crash_images.py" "${arguments[@]}" "$folder/crash" --again 20 \
  >"$folder/crash.log" 2>&1 || status=1
for pid in "${pids[@]}"; do wait "$pid" || status=1; done
grep -h FAILED "$folder"/*.log || true
tail -n 1 "$folder"/faults-*.log
cat "$folder/crash.log"
exit "$status"
