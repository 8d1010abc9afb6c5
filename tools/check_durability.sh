#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Every failing call, every power cut and many kills, in full (docs/reliability.md); ctest has a
# sample.
# usage: tools/check_durability.sh BUILD FOLDER [PARTS [MALLOC]]
# PARTS at once (default: the processors); of each command at most MALLOC allocations (default 300).
# Where FOLDER is in memory (/dev/shm) it takes minutes, on a disk about an hour on eight processors.
set -euo pipefail
build=$(realpath "$1") parts=${3:-$(nproc)} malloc=${4:-300}
mkdir -p "$2"
folder=$(realpath "$2")
source=$(cd "$(dirname "$0")/.." && pwd)
faults=$source/tests/faults
arguments=("$build/nibble" "$build/tests/faults/faulty_calls.so" "$source")

# part I: one share of each of the three.
part() {
  local i=$1 status=0
  python3 "$faults/run_faults.py" "${arguments[@]}" "$folder/faults-$i" --malloc "$malloc" \
    --part "$i/$parts" >"$folder/faults-$i.log" 2>&1 || status=1
  python3 "$faults/crash_images.py" "${arguments[@]}" "$folder/crash-$i" --again 20 \
    --part "$i/$parts" >"$folder/crash-$i.log" 2>&1 || status=1
  python3 "$faults/run_kills.py" "$build/nibble" "$source" "$folder/kills-$i" --kills 300 \
    --part "$i/$parts" >"$folder/kills-$i.log" 2>&1 || status=1
  return "$status"
}

pids=() status=0
for ((i = 1; i <= parts; ++i)); do
  part "$i" &
  pids+=($!)
done
for pid in "${pids[@]}"; do wait "$pid" || status=1; done
# Loop devices are few: one program has them. 77: there are none, and its last line says so.
python3 "$faults/ext4_images.py" "${arguments[@]}" "$folder/ext4" >"$folder/ext4-1.log" 2>&1 ||
  [ $? = 77 ] || status=1
grep -h FAILED "$folder"/*.log || true
for kind in faults crash ext4 kills; do tail -qn 1 "$folder/$kind"-*.log; done
exit "$status"
