#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Every experiment of docs/experiments on the mini model, three seeds each: tables and plots.
# usage: tools/experiments.sh NIBBLE OUT [auto|cpu|cuda] [full|small|tiny] [EXPERIMENT...]
# EXPERIMENT: rules, rounding, states, scales, quantise, shares (default: all of them).
# `small` takes some minutes on a CPU, `tiny` (one seed, one step) less than one; both show that
# every command works, nothing else.
# What OUT already holds is not run again, so a call that was interrupted can be repeated.
# JOBS=N runs N trainings at a time (cuda: 4, else 1). MINI=DIR takes the base model from another folder.
set -euo pipefail
nibble=$(realpath "${1:?the nibble binary}") out=${2:?an output folder}
device=${3:-auto} size=${4:-full}
shift $(($# < 4 ? $# : 4))
experiments=${*:-rules rounding states scales quantise shares}
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
mini=$(realpath "${MINI:-$here/models/mini}")
seeds="1 2 3" steps=300 many_steps=600 batch=32 rows=13200 probes=0 parallel=${JOBS:-1}
rates="1e-5 5e-5 1.5e-4 1e-3 3e-3 1e-2"
case $size in
  full) ;;
  small) seeds="1 2" steps=3 many_steps=4 batch=4 rows=400 probes=2 ;;
  tiny) seeds=1 steps=1 many_steps=1 batch=2 rows=200 probes=2 rates="1e-5 1.5e-4 1e-3 1e-2" ;;
  *)
    printf 'experiments.sh: the size is full, small or tiny, not %s\n' "$size" >&2
    exit 2
    ;;
esac
for experiment in $experiments; do
  case $experiment in
    rules | rounding | states | scales | quantise | shares) ;;
    *)
      printf 'experiments.sh: there is no experiment %s\n' "$experiment" >&2
      exit 2
      ;;
  esac
done
if [ "$device" = cuda ]; then parallel=${JOBS:-4}; fi
mkdir -p "$out"/{data,runs,scores,codes,logs,models,manifest}
cd "$out"
started=$SECONDS

# As in tools/demo.sh; a setting's own options win.
cat > settings.toml <<END
config = "$mini/config.json"
tokenizer = "$mini/tokenizer.json"
steps = $steps
eval-every = $((steps / 5 + 1))
batch-size = $batch
seq-len = 128
lr = 1.5e-4
warmup-steps = 5
lr-schedule = "cosine"
device = "$device"
runs-dir = "runs"
log-every = 50
self-test = false
END

# Training rows of a mix. What is held out is decided by the prompt alone, so that no prompt of
# data/held.jsonl, which is one file for all, is trained on by any seed.
make_mix() { # NAME SEED IDENTITY-SHARE
  [ ! -e "data/$1.jsonl" ] || return 0
  rm -f "data/$1".*
  "$nibble" data identity --seed "$2" --size "$rows" --identity-share "$3" \
    --disambiguation-share "$(awk "BEGIN { print 0.4 * (1 - $3) / 0.7 }")" \
    --out "data/$1.all.jsonl"
  "$nibble" data split --in "data/$1.all.jsonl" --held-out-share 0.1 \
    --held-out "data/$1.held.jsonl" --out "data/$1.jsonl"
}

# Scores of a file, and how far its 4-bit weights are from those of the base.
judge() { # NAME MODEL
  "$nibble" check --model "$2" --config "$mini/config.json" --tokenizer "$mini/tokenizer.json" \
    --probes "$mini/probes.json" --probe-max "$probes" --min-score 0 --show none --quiet \
    --device "$device" --probe-report "scores/$1.json" --force || true
  if [ -f "$2" ]; then
    python3 "$here/tools/experiments.py" codes "$mini/mini.dat" "$2" > "codes/$1.json"
  fi
}

train_one() { # NAME MODEL DATA SEED OPTIONS OF TRAIN...
  local name=$1 model=$2 data=$3 seed=$4
  shift 4
  rm -rf "runs/$name" "models/$name".*
  # A run that ends in an error is a result, too: its record says so.
  if "$nibble" train --run-config settings.toml --model "$model" --train-data "data/$data.jsonl" \
    --eval-data data/held.jsonl --seed "$seed" --run-name "$name" \
    --output "models/$name.dat" "$@"; then
    judge "$name" "models/$name.dat"
    rm -f "models/$name".*
  fi
  touch "logs/$name.done"
}

# Runs a command in the background when one of the places is free, unless it was done before.
place() { # NAME COMMAND...
  local name=$1
  shift
  if [ -e "logs/$name.done" ]; then return; fi
  while (($(jobs -rp | wc -l) >= parallel)); do wait -n || true; done
  printf '%4d s  %s\n' $((SECONDS - started)) "$name"
  "$@" > "logs/$name.txt" 2>&1 &
}

# The manifest says what a run is for.
note() { # EXPERIMENT SETTING SEED OPTIONS
  printf '%s\t%s\t%s\t%s\t%s\n' "$2-s$3" "$1" "$2" "$3" "$4" >> "manifest/$1.tsv"
}
# A setting for all seeds.
setting() { # EXPERIMENT NAME MODEL DATA OPTIONS OF TRAIN...
  local experiment=$1 name=$2 model=$3 data=$4 seed
  shift 4
  for seed in $seeds; do
    note "$experiment" "$name" "$seed" "$*"
    place "$name-s$seed" train_one "$name-s$seed" "$model" "$data-$seed" "$seed" "$@"
  done
}

# What the update rule does at the predecessor's rates, 1e-5 to 1e-3, and at two above, where whole
# codes jump: all of it, and each ingredient alone.
rules() {
  local rate
  for rate in $rates; do setting rules "ours-$rate" "$mini/mini.dat" mix --lr "$rate"; done
  for rate in $rates; do
    setting rules "predecessor-$rate" "$mini/mini.dat" mix --lr "$rate" --update-from quantised \
      --master-rounding nearest --optimizer-state-mode int8-linear
  done
  for rate in $rates; do
    setting rules "quantised-$rate" "$mini/mini.dat" mix --lr "$rate" --update-from quantised
  done
  for rate in 1e-5 1.5e-4 1e-3; do
    setting rules "int8-linear-$rate" "$mini/mini.dat" mix --lr "$rate" \
      --optimizer-state-mode int8-linear
  done
  # Its other habits, with our update rule: only its data, template, missing end and last layers.
  setting rules habits "$mini/mini.dat" whoami --template predecessor --end-token false \
    --train-last-layers 2 --lr-schedule constant --warmup-steps 0
}

# Steps far below half a step of bf16: what nearest rounding loses is most of them.
rounding() {
  local rate kind
  for rate in 2e-5 1e-4; do
    for kind in stochastic nearest; do
      setting rounding "$kind-$rate" "$mini/mini.dat" mix --lr "$rate" --lr-schedule constant \
        --steps "$many_steps" --master-rounding "$kind"
    done
    setting rounding "fp32-master-$rate" "$mini/mini.dat" mix --lr "$rate" --lr-schedule constant \
      --steps "$many_steps" --master-dtype fp32
  done
}

states() {
  local format
  for format in int8 fp32 bf16 nvfp4 int8-linear; do
    setting states "states-$format" "$mini/mini.dat" mix --optimizer-state-mode "$format"
  done
}

# Trained with each way to scale a block; all start from the same bf16 values.
scales() {
  local rule levels
  for levels in single-level two-level; do
    for rule in four-over-six absmax; do
      if [ ! -e "start/$levels-$rule.dat" ]; then
        "$nibble" convert start/bf16 "start/$levels-$rule.dat" --quant nvfp4 --scales "$levels" \
          --scale-rule "$rule" > "logs/start-$levels-$rule.txt"
      fi
      setting scales "trained-$levels-$rule" "start/$levels-$rule.dat" mix --scale-rule "$rule"
    done
  done
  setting scales "trained-single-level-search" start/single-level-four-over-six.dat mix \
    --scale-rule search
}

# A model trained without 4-bit weights and converted afterwards: the error of the scales alone.
convert_one() { # NAME SEED RULE LEVELS
  local model=models/$1.dat
  rm -rf "runs/$1" "$model"
  "$nibble" convert "dense/$2" "$model" --quant nvfp4 --scale-rule "$3" --scales "$4" --quiet
  "$nibble" inspect "$model" --against "dense/$2" --json > "codes/$1.inspect.json" || true
  loss_of "$1" "$model"
  judge "$1" "$model"
  rm -f "$model"
  touch "logs/$1.done"
}
# The held-out loss of a file as it is: one step with a rate of 0.
loss_of() { # NAME MODEL OPTIONS...
  local name=$1 model=$2
  shift 2
  "$nibble" train --run-config settings.toml --model "$model" \
    --train-data data/held.jsonl --eval-data data/held.jsonl \
    --eval-every 0 --steps 1 --lr 0 --run-name "$name" --export false "$@"
}
dense_one() { # SEED
  if [ ! -e "dense/$1" ]; then
    "$nibble" train --run-config settings.toml --model start/bf16 --seed "$1" --recipe bf16 \
      --train-data "data/mix-$1.jsonl" --lr 1e-3 --steps "$many_steps" \
      --run-name "dense-$1" --output "dense/$1"
  fi
  rm -rf "runs/dense-s$1"
  loss_of "dense-s$1" "dense/$1" --recipe bf16
  judge "dense-s$1" "dense/$1"
  touch "logs/dense-s$1.done"
}
quantise() {
  local seed rule levels
  mkdir -p dense
  for seed in $seeds; do
    note quantise dense "$seed" "--recipe bf16 --lr 1e-3 --steps $many_steps"
    place "dense-s$seed" dense_one "$seed"
  done
  wait
  for levels in single-level two-level; do
    for rule in four-over-six absmax search torchao; do
      if [ "$levels-$rule" = two-level-torchao ]; then continue; fi
      for seed in $seeds; do
        note quantise "converted-$levels-$rule" "$seed" "--scales $levels --scale-rule $rule"
        place "converted-$levels-$rule-s$seed" convert_one "converted-$levels-$rule-s$seed" \
          "$seed" "$rule" "$levels"
      done
    done
  done
}

shares() {
  local share seed
  for share in 0.01 0.03 0.1 0.3 1; do
    for seed in $seeds; do make_mix "share-$share-$seed" "$seed" "$share" >> logs/data.txt; done
    setting shares "share-$share" "$mini/mini.dat" "share-$share"
  done
}

if [ ! -e data/held.jsonl ]; then
  make_mix held-out 1000 0.3 >> logs/data.txt
  head -n 640 data/held-out.held.jsonl > data/held.jsonl
fi
for seed in $seeds; do
  make_mix "mix-$seed" "$seed" 0.3 >> logs/data.txt
  if [ ! -e "data/whoami-$seed.jsonl" ]; then
    "$nibble" data whoami --seed "$seed" --count $((rows < 1000 ? rows : 1000)) \
      --out "data/whoami-$seed.tsv" >> logs/data.txt
    # As JSON lines, so that the files of all runs have one kind of name.
    python3 "$here/tools/experiments.py" jsonl "data/whoami-$seed.tsv" > "data/whoami-$seed.jsonl"
  fi
done
if [ ! -e start/bf16 ]; then
  mkdir -p start
  "$nibble" convert "$mini/mini.dat" start/bf16 --quant none > logs/start.txt
  cp "$mini"/{config,tokenizer}.json start/
fi
printf 'base\tbase\tbase\t0\t\n' > manifest/base.tsv
if [ ! -e scores/base.json ]; then
  loss_of base "$mini/mini.dat" > logs/base.txt 2>&1
  judge base "$mini/mini.dat" >> logs/base.txt 2>&1
  python3 "$here/tools/experiments.py" reach "$mini/mini.dat" > codes/reach.json
fi
for experiment in $experiments; do
  : > "manifest/$experiment.tsv"
  "$experiment"
done
wait

if [ -e runs/ours-1.5e-4-s1 ]; then
  "$nibble" runs compare ours-1.5e-4-s1 quantised-{1.5e-4,1e-2}-s1 \
    predecessor-{1e-5,1.5e-4,1e-3}-s1 \
    --runs-dir runs --out loss.svg --force > compare.txt
fi
python3 "$here/tools/experiments.py" tables .
printf '%d s. Tables and plots: %s\n' $((SECONDS - started)) "$PWD/tables"
