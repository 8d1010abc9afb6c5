#!/bin/sh
# SPDX-License-Identifier: MIT
# nibble and llama.cpp in turns on the same machine: medians and their ratio. A machine's speed
# drifts, so single figures of two programs measured apart say little; the ratio in one run does.
#   bench/compare_llamacpp.sh NIBBLE MODEL LLAMA_BENCH GGUF [ROUNDS [THREADS [PROMPT [TOKENS]]]]
# NIBBLE and LLAMA_BENCH are the programs, MODEL and GGUF the same model for each of them.
set -eu

if [ $# -lt 4 ]; then
  sed -n '5,6s/^# *//p' "$0" >&2
  exit 2
fi
nibble=$1 model=$2 llama=$3 gguf=$4
rounds=${5:-5} threads=${6:-$(nproc)} prompt=${7:-128} tokens=${8:-32}
for f in "$nibble" "$model" "$llama" "$gguf"; do
  [ -e "$f" ] || { echo "$f: no such file" >&2; exit 3; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The speed of one llama-bench run, from its JSON.
llama_rate() {
  "$llama" -m "$gguf" -t "$threads" -r 3 -o json "$@" 2>/dev/null |
    sed -n 's/.*"avg_ts": *\([0-9.]*\).*/\1/p' | head -n 1
}
nibble_rate() {
  "$nibble" bench --quiet --model "$model" --threads "$threads" --repeat 3 --brief "$@"
}
median() {
  sort -n "$1" | awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'
}

i=0
while [ "$i" -lt "$rounds" ]; do
  i=$((i + 1))
  # llama-bench decodes from an empty context; nibble needs one token to start from.
  nibble_rate --phase prefill --prompt-tokens "$prompt" >>"$work/nibble.prefill"
  llama_rate -p "$prompt" -n 0 >>"$work/llama.prefill"
  nibble_rate --phase decode --prompt-tokens 1 --tokens "$tokens" >>"$work/nibble.decode"
  llama_rate -p 0 -n "$tokens" >>"$work/llama.decode"
  printf 'round %d: prefill %s / %s, decode %s / %s\n' "$i" \
    "$(tail -n 1 "$work/nibble.prefill")" "$(tail -n 1 "$work/llama.prefill")" \
    "$(tail -n 1 "$work/nibble.decode")" "$(tail -n 1 "$work/llama.decode")" >&2
done

printf '%-12s %10s %10s %8s\n' 'tok/s' nibble llama.cpp ratio
for phase in prefill decode; do
  a=$(median "$work/nibble.$phase") b=$(median "$work/llama.$phase")
  name=$([ "$phase" = prefill ] && echo "prefill $prompt" || echo "decode $tokens")
  awk -v n="$name" -v a="$a" -v b="$b" \
    'BEGIN { printf "%-12s %10.2f %10.2f %8s\n", n, a, b, (b > 0 ? sprintf("%.2f", a / b) : "-") }'
done
