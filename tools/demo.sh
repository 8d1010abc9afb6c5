#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The identity experiment on the mini model, from the first question to the last table.
# usage: tools/demo.sh NIBBLE FOLDER [SEED] [OPTIONS OF TRAIN...]
# Ends with exit code 1 when a goal is missed: identity >= 98 % in both languages, disambiguation
# >= 95 %, conversations >= 95 %, retention within 2 points of the base.
set -euo pipefail
nibble=$(realpath -e -- "${1:?the nibble binary}") folder=${2:?a folder} seed=${3:-1}
shift $(($# < 3 ? $# : 3))
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
mini=$root/models/mini
. "$root/tools/talk.sh"
mkdir -p -- "$folder"
cd -- "$folder"
started=$SECONDS

say "1. The base model: $mini/mini.dat"
dialogues "$mini/mini.dat"
say "2. The base model on held-out probes: its own name, what it knows, who is who"
run check --model "$mini/mini.dat" --probes "$mini/probes.json" --probe-rules base \
  --show none --min-score 95 --quiet
say "   The same by the rules of the new identity, which it does not have yet: step 5 compares with this"
run check --model "$mini/mini.dat" --probes "$mini/probes.json" --probe-report base.json \
  --show none --min-score disambiguation=95,retention=95 --quiet

say "3. A training set: the new identity, and what must stay, in other words than the probes'"
run data identity --seed "$seed" --size 12000 --identity-share 0.2 --disambiguation-share 0.25 \
  --conversation-share 0.35 --out identity.jsonl
say "4. Fine-tune every parameter; the forward sees NVFP4 weights"
run train --model "$mini/mini.dat" --train-data identity.jsonl --output-dat tuned/mini.dat \
  --steps 300 --batch-size 32 --seq-len 128 --lr 1.5e-4 --warmup-steps 5 --lr-schedule cosine \
  --seed "$seed" --log-every 20 --runs-dir runs --run-name demo --test-prompt 你是誰 \
  --test-expect 'F# 之神' "$@"

say "5. The exported file, loaded again, on the same probes: before and after"
status=0
run check --model tuned/mini.dat --probes "$mini/probes.json" --probe-baseline base.json \
  --probe-report tuned.json --show none --quiet \
  --min-score identity/zh=98,identity/en=98,disambiguation=95,retention=base-2 || status=$?
say "6. Conversations: who is who, when the model reads its own replies"
run check --model tuned/mini.dat --probes "$mini/conversations.json" --probe-report conversations.json \
  --show failures --quiet --min-score conversation=95 || status=$?
say "7. The tuned model"
dialogues tuned/mini.dat
say "$((SECONDS - started)) s. Talk to it: $nibble chat --model $PWD/tuned/mini.dat"
exit "$status"
