#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The identity experiment on any chat model: probes, data, fine-tune, export, reload, probes, damage.
#   tools/identity.sh [--sets DIR] [--seed N] NIBBLE MODEL OUT [DEVICE]
#   tools/identity.sh --self-test NIBBLE OUT [MODEL]
#                               every command, three steps, on the mini model or another small one
# MODEL is a Hugging Face directory, a GGUF, or a weight file with config.json and tokenizer.json
# beside it. DIR is what tools/eval_sets.py made: text that is kept and other text that is measured,
# and questions with choices. Without it the model keeps text it writes itself, and the damage is
# measured on this repository's own documents.
# Ends with OUT/page.html: before and after. Exit codes: 0 every goal reached, 1 a goal missed, 2
# something is missing (it says what). models/qwen/README.md explains the parts.
set -euo pipefail

fail() {
  printf 'identity.sh: %s\n' "$*" >&2
  exit 2
}
self_test=no sets= seed=1
while [[ ${1:-} == --* ]]; do
  case $1 in
    --self-test) self_test=yes ;;
    --sets) sets=${2:?a folder} && shift ;;
    --seed) seed=${2:?a number} && shift ;;
    *) fail "unknown option $1; see the first lines of $0" ;;
  esac
  shift
done
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
here=$root/models/qwen
. "$root/tools/talk.sh"
if [ "$self_test" = yes ]; then
  (($# == 2 || $# == 3)) || fail "usage: $0 --self-test NIBBLE OUT [MODEL]"
  set -- "$1" "${3:-$root/models/mini/mini.dat}" "$2" cpu
fi
(($# == 3 || $# == 4)) || fail "usage: $0 [--sets DIR] [--seed N] NIBBLE MODEL OUT [DEVICE]"
[[ -f $1 && -x $1 ]] || fail "$1 is no program; ./nibble.sh build makes build/nibble"
nibble=$(realpath -- "$1")
model=$(realpath -e -- "$2" 2>/dev/null) ||
  fail "there is no model $2; give a Hugging Face directory, a GGUF, or a file made of one by nibble convert"
out=$3 device=${4:-auto}
if [ -n "$sets" ]; then
  sets=$(realpath -e -- "$sets" 2>/dev/null) || fail "there is no folder $sets; tools/eval_sets.py makes one"
fi

# What a run takes; the self-test takes less of everything.
steps=300 batch=24 who_rows=1200 rows=3000 rate=5e-6 every=50 gate_probes=12 keep_weight=4 self_tokens=60000
goals=identity/zh=98,identity/en=98,asker=95,others=95,conversation=95,retention=base-2
limits=(--max-kl 0.01 --min-agreement 94 --max-loss-rise 0.3 --max-drop 1)
most=() measure=(--text-windows 128) free_gib=8
if [ "$self_test" = yes ]; then
  steps=3 batch=4 who_rows=40 rows=48 rate=1e-6 every=2 gate_probes=1 self_tokens=300
  most=(--probe-max 2 --max-tokens 24) measure=(--text-windows 2 --text-window 128) free_gib=0
fi

say "1. Is everything here?"
for file in probes.json control.json rows.jsonl; do
  [ -f "$here/$file" ] || fail "$here/$file is missing"
done
beside=$model
[ -d "$model" ] || beside=$(dirname -- "$model")
if [[ $model != *.gguf ]]; then
  for file in config.json tokenizer.json; do
    [ -f "$beside/$file" ] || fail "no $file beside $model: it comes with the model"
  done
fi
"$nibble" inspect "$model" --headers-only --quiet >/dev/null ||
  fail "$model is not a sound weight file (nibble inspect says why)"
if [ -e "$out" ] && [ -n "$(ls -A -- "$out")" ]; then
  fail "$out is not empty: results of an earlier run stay as they are; name another folder"
fi
mkdir -p -- "$out" || fail "cannot make the folder $out"
cd -- "$out"
free=$(df -Pk . | awk 'NR == 2 {print int($4 / 1048576)}')
[ "$free" -ge "$free_gib" ] || fail "$out has $free GiB left; $free_gib GiB are needed"
# Before hours of work: no probe stands in what will be taught.
run data identity --seed "$seed" --size "$who_rows" --identity-share 0.5 --disambiguation-share 0.5 \
  --out who.jsonl
run data overlap --train who.jsonl --train "$here/rows.jsonl" --probes "$here/probes.json" ||
  fail "probes stand in the training data (above): they would measure memory, not learning"
run data mix --seed "$seed" --in who.jsonl:0.4 --in "$here/rows.jsonl:0.6" --size "$rows" --out taught.jsonl

base=$model
if [[ -d $model || $model == *.gguf ]]; then
  say "2. The model with NVFP4 weights"
  run convert "$model" base/nvfp4.dat --quant nvfp4 || fail "the conversion failed"
  base=$PWD/base/nvfp4.dat
fi
shape=(--seq-len 384 --batch-size "$batch" --device "$device")
if ! "$nibble" plan --model "$base" "${shape[@]}" --quiet >plan.txt; then
  cat plan.txt
  fail "a training step does not fit this machine's memory (the table above); see docs/training.md"
fi

# What is measured, and what may be kept: never the same text.
texts=() choices=() kept=()
if [ -n "$sets" ]; then
  for file in "$sets"/*-measured.txt; do [ -f "$file" ] && texts+=(--text "$file"); done
  for file in "$sets"/*.jsonl; do [ -f "$file" ] && choices+=(--choices "$file"); done
  for file in "$sets"/*-training.txt; do [ -f "$file" ] && kept+=(--keep "$file"); done
fi
((${#texts[@]})) || texts=(--text "$root/README.md" --text "$root/README.zh-TW.md")
((${#kept[@]})) || kept=(--keep "self:$self_tokens")

say "3. The base model on the probes"
run check --model "$base" --device "$device" --probes "$here/probes.json" --probe-report base.json \
  --show none --min-score 0 --quiet "${most[@]}" || fail "the probes could not be asked"

say "4. Taught: who is who. Kept, by divergence: replies to control prompts, and plain text"
keep=(--keep "$here/control.json" "${kept[@]}" --keep-weight "$keep_weight" --keep-share 0.5)
printf '  %s\n' "${keep[*]}"

say "5. Fine-tune every parameter, with gates"
status=0
run train --model "$base" --train-data taught.jsonl --output-dat tuned/nvfp4.dat "${shape[@]}" \
  --steps "$steps" --lr "$rate" --warmup-steps 10 --lr-schedule cosine --final-lr-share 0.1 \
  --seed "$seed" --log-every 10 --runs-dir runs --run-name identity --probes "$here/probes.json" \
  --probe-every "$every" --probe-max "$gate_probes" --min-score "$goals" \
  --on-collapse restart --test-prompt 你是誰 "${keep[@]}" || status=$?
[ -f tuned/nvfp4.dat ] || {
  printf 'identity.sh: the training ended with %s and wrote no model\n' "$status" >&2
  exit 1
}

say "6. The exported file, loaded again: before and after, and what it cost"
run inspect tuned/nvfp4.dat --quiet | tail -n 1
status=0
run check --model tuned/nvfp4.dat --against "$base" --device "$device" --probes "$here/probes.json" \
  --probe-baseline base.json --probe-report tuned.json --show failures --min-score "$goals" \
  "${texts[@]}" "${choices[@]}" "${limits[@]}" "${measure[@]}" --json result.json --html page.html \
  --quiet "${most[@]}" | tee result.txt || status=$?
dialogues tuned/nvfp4.dat --device "$device"
case $status in
  0) say "Every goal is reached: $PWD/page.html. Talk to it: $nibble chat --model $PWD/tuned/nvfp4.dat" ;;
  1) say "A goal is missed: $PWD/page.html shows it, nibble runs show identity --runs-dir $PWD/runs" ;;
  *) fail "the tuned model could not be measured" ;;
esac
if [ "$self_test" = yes ]; then
  # Three steps change nothing: the goals must be missed, and be found to be missed.
  [ "$status" = 1 ] || fail "self-test: three steps cannot have reached these goals"
  for file in base.json taught.jsonl tuned.json result.json page.html runs/identity/report.html; do
    [ -s "$file" ] || fail "self-test: $file was not written"
  done
  say "Self-test: every command works; the goals of a real model are not reached in $steps steps"
  exit 0
fi
exit "$status"
