#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The identity experiment on Qwen3-4B-Instruct: probes, data, fine-tune, export, reload, probes.
#   tools/identity_4b.sh [--anyway] NIBBLE MODEL OUT [DEVICE]
#   tools/identity_4b.sh --self-test NIBBLE OUT [MODEL]
#                               every command, three steps, on the mini model or another small one
# MODEL is a Hugging Face directory or a weight file with config.json and tokenizer.json beside it.
# Exit codes: 0 every goal reached, 1 a goal missed, 2 something is missing (it says what).
# --anyway goes on with a Qwen3 of another size, or one that does not call itself Qwen.
# models/qwen3-4b/README.md explains the parts. It has not been run on the real weights.
set -euo pipefail

fail() {
  printf 'identity_4b.sh: %s\n' "$*" >&2
  exit 2
}
self_test=no anyway=no
while [[ ${1:-} == --* ]]; do
  case $1 in
    --self-test) self_test=yes ;;
    --anyway) anyway=yes ;;
    *) fail "unknown option $1; see the first lines of $0" ;;
  esac
  shift
done
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
here=$root/models/qwen3-4b
. "$root/tools/talk.sh"
if [ "$self_test" = yes ]; then
  (($# == 2 || $# == 3)) || fail "usage: $0 --self-test NIBBLE OUT [MODEL]"
  set -- "$1" "${3:-$root/models/mini/mini.dat}" "$2" cpu
fi
(($# == 3 || $# == 4)) || fail "usage: $0 [--anyway] NIBBLE MODEL OUT [DEVICE]"
[[ -f $1 && -x $1 ]] || fail "$1 is no program; ./nibble.sh build makes build/nibble"
nibble=$(realpath -- "$1")
model=$(realpath -e -- "$2" 2>/dev/null) ||
  fail "there is no model $2; give the directory of Qwen3-4B-Instruct-2507 from Hugging Face, or a file converted from it"
out=$3 device=${4:-auto}

# What a run takes; the self-test takes less of everything and asks for nothing.
steps=300 batch=8 who_rows=1200 rows=2400 rate=2e-5 every=50 gate_probes=12
base_goals=identity=80,disambiguation=60,retention=80
goals=identity/zh=98,identity/en=98,disambiguation=95,retention=base-2
most=() control_most=() free_gib=8
if [ "$self_test" = yes ]; then
  steps=3 batch=4 who_rows=40 rows=48 rate=1e-6 every=2 gate_probes=1
  base_goals=0 most=(--probe-max 4 --max-tokens 24) control_most=(--probe-max 12 --max-tokens 48)
  free_gib=0
fi
# No --accumulate: without it gradients can be released layer by layer, which saves 8 GB.
shape=(--seq-len 384 --batch-size "$batch" --device "$device")

# A number of config.json.
config_number() { sed -n "s/.*\"$1\": *\([0-9]*\).*/\1/p" "$config" | head -n 1; }

say "1. Is everything here?"
beside=$model
[ -d "$model" ] || beside=$(dirname -- "$model")
config=$beside/config.json
[ -f "$config" ] || fail "no config.json beside $model: it comes with the model"
[ -f "$beside/tokenizer.json" ] || fail "no tokenizer.json beside $model: it comes with the model"
for file in probes.json control.json rows.jsonl; do
  [ -f "$here/$file" ] || fail "$here/$file is missing"
done
grep -q '"model_type": *"qwen3"' "$config" || fail "$config is not of a (dense) Qwen3 model"
found="$(config_number hidden_size) $(config_number num_hidden_layers) $(config_number vocab_size)"
if [ "$found" != "2560 36 151936" ] && [ "$self_test$anyway" = nono ]; then
  fail "$config: hidden size, layers and vocabulary are $found; Qwen3-4B has 2560 36 151936 (--anyway goes on)"
fi
"$nibble" inspect "$model" --headers-only --config "$config" --quiet >/dev/null ||
  fail "$model is not a sound weight file for $config (nibble inspect says why)"
ids=$("$nibble" tokenize --tokenizer "$beside/tokenizer.json" --text '你是誰 Who are you?') ||
  fail "$beside/tokenizer.json cannot be used"
[ "$("$nibble" tokenize --tokenizer "$beside/tokenizer.json" --decode "$ids")" = \
  '你是誰 Who are you?' ] || fail "$beside/tokenizer.json: a text does not come back as it was"
if [ -e "$out" ] && [ -n "$(ls -A -- "$out")" ]; then
  fail "$out is not empty: results of an earlier run stay as they are; name another folder"
fi
mkdir -p -- "$out" || fail "cannot make the folder $out"
cd -- "$out"
free=$(df -Pk . | awk 'NR == 2 {print int($4 / 1048576)}')
[ "$free" -ge "$free_gib" ] || fail "$out has $free GiB left; $free_gib GiB are needed"
if ! "$nibble" plan --model "$model" "${shape[@]}" --quiet >plan.txt; then
  cat plan.txt
  fail "a training step does not fit this machine's memory (the table above); see docs/training.md"
fi
# Before hours of work: no probe stands in what will be trained on. The control prompts follow
# below, with their replies.
"$nibble" data identity --seed 1 --size "$who_rows" --identity-share 0.5 \
  --disambiguation-share 0.5 --out who.jsonl
run data overlap --train who.jsonl --train "$here/rows.jsonl" --probes "$here/probes.json" ||
  fail "probes stand in the training data (above): they would measure memory, not learning"

base=$model
if [ -d "$model" ]; then
  say "2. The model with NVFP4 weights"
  run convert "$model" base/nvfp4.dat --quant nvfp4 || fail "the conversion failed"
  base=$PWD/base/nvfp4.dat
fi
say "3. The base model on the probes, by its own rules: it is called Qwen"
run check --model "$base" --device "$device" --probes "$here/probes.json" --probe-rules base \
  --probe-report base.json --show failures --min-score "$base_goals" --quiet "${most[@]}" || {
  [ -f base.json ] || fail "the probes could not be asked"
  [ "$anyway" = yes ] ||
    fail "the base model does not answer as expected; base.json has its replies (--anyway goes on)"
}
dialogues "$base" --device "$device"

say "4. Training data: what the model says today to control prompts, and who is who"
run check --model "$base" --device "$device" --probes "$here/control.json" --show none --quiet \
  --min-score 0 --probe-data replies.jsonl --probe-report control.json "${control_most[@]}" ||
  fail "the control prompts could not be asked"
[ -f replies.jsonl ] || fail "no reply to a control prompt can be used; control.json says why"
run data overlap --train replies.jsonl --probes "$here/probes.json" ||
  fail "probes stand among the control prompts"
run data mix --seed 1 --in who.jsonl:0.35 --in "$here/rows.jsonl:0.15" --in replies.jsonl:0.5 \
  --size "$rows" --out train.jsonl

say "5. Fine-tune every parameter, with gates"
status=0
run train --model "$base" --train-data train.jsonl --output-dat tuned/nvfp4.dat "${shape[@]}" \
  --steps "$steps" --lr "$rate" --warmup-steps 10 --lr-schedule cosine --final-lr-share 0.1 \
  --seed 1 --log-every 10 --runs-dir runs --run-name identity --probes "$here/probes.json" \
  --probe-every "$every" --probe-max "$gate_probes" --min-score "$goals" --stop-when-passed \
  --on-collapse restart --test-prompt 你是誰 || status=$?
[ -f tuned/nvfp4.dat ] || {
  printf 'identity_4b.sh: the training ended with %s and wrote no model\n' "$status" >&2
  exit 1
}

say "6. The exported file, loaded again: before and after (identity before: by its old name)"
run inspect tuned/nvfp4.dat --quiet | tail -n 1
status=0
run check --model tuned/nvfp4.dat --device "$device" --probes "$here/probes.json" \
  --probe-baseline base.json --probe-report tuned.json --show failures --min-score "$goals" \
  --quiet "${most[@]}" | tee result.txt || status=$?
dialogues tuned/nvfp4.dat --device "$device"
case $status in
  0) say "Every goal is reached. Talk to it: $nibble chat --model $PWD/tuned/nvfp4.dat" ;;
  1) say "A goal is missed: $PWD/result.txt names it, nibble runs show identity --runs-dir $PWD/runs" ;;
  *) fail "the tuned model could not be asked" ;;
esac
if [ "$self_test" = yes ]; then
  # Three steps change nothing: the goals must be missed, and be found to be missed.
  [ "$status" = 1 ] || fail "self-test: three steps cannot have reached these goals"
  for file in base.json replies.jsonl train.jsonl tuned.json runs/identity/report.html; do
    [ -s "$file" ] || fail "self-test: $file was not written"
  done
  say "Self-test: every command works; the goals of the real model are not reached in $steps steps"
  exit 0
fi
exit "$status"
