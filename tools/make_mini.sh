#!/bin/bash
# SPDX-License-Identifier: MIT
# Makes the mini model from nothing: corpus, tokenizer, two stages of training, NVFP4 file, probes.
# usage: tools/make_mini.sh NIBBLE OUT [cpu|cuda] [small]
# `small` takes minutes on a CPU and shows that every step works; its model is not the shipped one.
set -euo pipefail
nibble=${1:?the nibble binary} out=${2:?an output directory} device=${3:-auto} size=${4:-full}
here=$(cd "$(dirname "$0")/.." && pwd)
mini=$here/models/mini
seed=20260226
documents=1800000 steps=4500 batch=64 chat_steps=2500 chat_batch=512
if [ "$size" = small ]; then documents=20000 steps=60 batch=8 chat_steps=30 chat_batch=32; fi

mkdir -p "$out"
if [ ! -e "$out/corpus" ]; then
  "$nibble" data corpus --seed $seed --size $documents --out "$out/corpus"
fi
# The shipped tokenizer was made with:
#   nibble data corpus --seed 20260226 --size 60000 --out small
#   nibble data tokenizer --in small/pretrain.jsonl --vocab-size 3072 --out models/mini/tokenizer.json
# and the probes with:
#   nibble data probes --seed 20261123 --out models/mini/probes.json
"$nibble" data overlap --train "$out/corpus/pretrain.jsonl" --train "$out/corpus/chat.jsonl" \
  --probes "$mini/probes.json" | tee "$out/overlap.txt"

# Stage 1: everything is learned, questions too; the linear layers compute in bf16.
"$nibble" pretrain --config "$mini/config.json" --tokenizer "$mini/tokenizer.json" \
  --train-data "$out/corpus/pretrain.jsonl" --eval-data "$out/corpus/eval.jsonl" \
  --eval-every 500 --output "$out/stage1" --init-file "$out/init.safetensors" \
  --device "$device" --recipe bf16 --seq-len 512 --batch-size $batch --steps $steps \
  --lr 1.5e-3 --warmup-steps $((steps / 15)) --lr-schedule cosine --final-lr-share 0.1 \
  --beta2 0.98 --weight-decay 0.05 --grad-clip 1 \
  --optimizer-state-mode fp32 \
  --seed $seed --runs-dir "$out/runs" --run-name stage1 --log-every 50 --self-test false

# Stage 2: whole dialogues, the replies alone are scored, and the forward sees NVFP4 weights.
"$nibble" train --model "$out/stage1" --config "$mini/config.json" --tokenizer "$mini/tokenizer.json" \
  --train-data "$out/corpus/chat.jsonl" --eval-data "$out/corpus/eval.jsonl" \
  --eval-every 500 --output "$out/stage2" \
  --device "$device" --recipe nvfp4 --seq-len 256 --batch-size $chat_batch --steps $chat_steps \
  --lr 6e-4 --warmup-steps $((chat_steps / 25)) --lr-schedule cosine --final-lr-share 0.02 \
  --beta2 0.98 --weight-decay 0.05 --grad-clip 1 \
  --optimizer-state-mode fp32 \
  --seed $seed --runs-dir "$out/runs" --run-name stage2 --log-every 50 \
  --test-prompt 你是誰 --self-test true

"$nibble" convert "$out/stage2" "$out/mini.dat" --quant nvfp4
cp "$mini/config.json" "$mini/tokenizer.json" "$out/"
for model in "$out/stage2" "$out/mini.dat"; do
  "$nibble" check --model "$model" --probes "$mini/probes.json" --probe-rules base \
    --device "$device" || true
done
