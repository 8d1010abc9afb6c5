#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Kills a training run with SIGKILL at random moments, many of them in the middle of a checkpoint,
# resumes it each time, and compares the exported file with that of a run that was left alone.
# usage: tools/check_kill.sh NIBBLE FOLDER KILLS [TRAIN_ARGUMENTS...]
# Without arguments of a training: a small one, and every other command that writes what somebody
# would miss (tests/faults/run_kills.py).
set -euo pipefail
nibble=$1 folder=$2 kills=$3
shift 3
if [ $# = 0 ]; then
  source=$(cd "$(dirname "$0")/.." && pwd)
  exec python3 "$source/tests/faults/run_kills.py" "$nibble" "$source" "$folder" --kills "$kills"
fi
train=("$nibble" train "$@" --save-every-steps 1 --keep-checkpoints 2 --quiet --self-test false)
mkdir -p "$folder"
"${train[@]}" --runs-dir "$folder/runs" --output-dat "$folder/alone.dat" >"$folder/alone.log" 2>&1
started=$(date +%s%N)
done_kills=0 resumes=0
while :; do
  more=()
  [ -n "$(ls "$folder"/saved/checkpoint-*.safetensors 2>/dev/null || true)" ] && more=(--resume)
  "${train[@]}" --runs-dir "$folder/runs" --checkpoint-dir "$folder/saved" \
    --output-dat "$folder/killed.dat" "${more[@]}" >>"$folder/killed.log" 2>&1 &
  pid=$!
  if [ "$done_kills" -lt "$kills" ]; then
    # From the middle of loading to some steps later.
    sleep "0.$((RANDOM % 10))$((RANDOM % 10))"
    [ $((RANDOM % 2)) = 0 ] && sleep "$((RANDOM % 3))"
    if kill -9 "$pid" 2>/dev/null; then done_kills=$((done_kills + 1)); fi
  fi
  status=0
  wait "$pid" 2>/dev/null || status=$?
  resumes=$((resumes + 1))
  [ "$status" = 0 ] && break
  [ "$status" = 137 ] || { tail -5 "$folder/killed.log"; exit 1; }
done
cmp "$folder/alone.dat" "$folder/killed.dat"
echo "killed $done_kills times in $((($(date +%s%N) - started) / 1000000000)) s, $resumes starts:" \
  "the exported file has the bytes of the run that was left alone"
