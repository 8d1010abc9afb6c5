#!/bin/bash
# SPDX-License-Identifier: MIT
# One sound file of every kind nibble reads, mutated by libFuzzer under ASan and UBSan.
#   tools/fuzz_files.sh FUZZ_DIR NIBBLE WORK [RUNS | SECONDSs] [JOBS]
# FUZZ_DIR: where the targets are (build-cpu-fuzz/tests/fuzz); NIBBLE: a program that makes the
# files; WORK: a folder for seeds, corpora and findings. RUNS mutated files of each target (default
# 10000), or so many seconds ("600s"). JOBS targets at once (default 1). A finding lies in WORK/found
# and the exit code is 1.
set -eu
fuzz=$(realpath "$1") nibble=$(realpath "$2") work=$3 each=${4:-10000} jobs=${5:-1}
root=$(realpath "$(dirname "$0")/..")
mkdir -p "$work/seeds" "$work/found"
work=$(realpath "$work")
seeds=$work/seeds
golden=$root/tests/golden

# copy TARGET PREFIX FILE...: a seed is a file, after the bytes its target chooses by.
copy() {
  local target=$1 prefix=$2 file
  shift 2
  mkdir -p "$seeds/$target"
  for file in "$@"; do
    [ -f "$file" ] || continue
    { printf '%b' "$prefix"; head -c 200000 "$file"; } \
      > "$seeds/$target/$(printf '%s' "$prefix$file" | cksum | cut -d' ' -f1)"
  done
}

make_seeds() {
  local m=$golden/qwen3_tied run=$work/runs/run n=0 file
  "$nibble" --quiet data probes --out "$work/probes.json" 2> /dev/null || true
  printf 'hello\tgood day\nwho are you\tnibble\n' > "$work/pairs.tsv"
  printf '%s\n' '{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]}' \
    '{"prompt":"a","target":"b"}' '{"text":"some text"}' > "$work/lines.jsonl"
  printf '%s\n' '{"ts":"x","messages":[{"role":"user","text":"a"}],"output":"b"}' > "$work/chat.jsonl"
  printf 'command = "train"\nseed = 3\n[[stage]]\nname = "a"\nlr = 1.5e-3\nstop = ["x", "y"]\n' \
    > "$work/run.toml"
  printf '%s' '{"do_sample":true,"temperature":0.7,"top_k":20,"eos_token_id":[1,2]}' \
    > "$work/generation.json"
  printf '%s' '{"eos_token":{"content":"x"},"chat_template":[{"name":"default","template":"{{ a }}"}]}' \
    > "$work/tokenizer_config.json"
  printf '1234, 5 MiB\n' > "$work/smi.txt"
  printf '{%% for m in messages %%}<{{ m.role }}>{{ m.content | trim }}{%% endfor %%}' > "$work/t.jinja"
  if [ ! -d "$run" ]; then
    "$nibble" --quiet train --model "$root/models/mini" --train-data "$work/pairs.tsv" --steps 2 \
      --seq-len 64 --runs-dir "$work/runs" --run-name run --export false > /dev/null 2>&1 || true
  fi
  for file in status.json run.json metrics.jsonl probes.jsonl config.toml memory.json \
      replies.jsonl chain.json command.txt; do
    copy runs "\\x0$n" "$run/$file"
    n=$((n + 1))
  done
  # A tiny model in every form that is written.
  printf '%s' '{"model_type":"qwen3","hidden_size":64,"num_hidden_layers":1,"num_attention_heads":1,' \
    '"num_key_value_heads":1,"head_dim":64,"intermediate_size":64,"vocab_size":16,"rms_norm_eps":1e-6,' \
    '"max_position_embeddings":64,"rope_theta":10000,"tie_word_embeddings":true}' > "$work/tiny.json"
  "$nibble" --quiet init --config "$work/tiny.json" --out "$work/tiny" --force > /dev/null 2>&1 || true
  for file in compressed-tensors modelopt; do
    "$nibble" --quiet convert "$work/tiny" "$work/$file" --to $file --force > /dev/null 2>&1 || true
    copy safetensors '' "$work/$file/model.safetensors"
    copy config '' "$work/$file/config.json"
    for n in 0 1 2 3 5 192 224; do  # into which form, see the target
      copy convert "\\x$(printf %02x $n)" "$work/$file/model.safetensors"
    done
  done
  for n in 0 1 2 3 4 6 7 9 64 67 192 224; do
    copy convert "\\x$(printf %02x $n)" "$work/tiny/model.safetensors"
  done
  for file in nvfp4 q8_0 q4_0 mxfp4; do
    "$nibble" --quiet convert "$work/tiny" "$work/$file.gguf" --quant $file --force > /dev/null 2>&1 || true
    copy gguf '' "$work/$file.gguf"
    copy gguf_model '' "$work/$file.gguf"
  done
  copy safetensors '' "$golden"/*/*.safetensors
  copy dat '' "$golden"/*/*.dat
  copy gguf '' "$golden"/gguf/*.gguf
  copy gguf_model '' "$golden"/gguf/*.gguf
  copy config '' "$golden"/*/config.json
  copy tokenizer '\x00' "$root/models/mini/tokenizer.json"
  copy chat_log '' "$work/chat.jsonl"
  copy jinja '' "$work/t.jinja" "$root"/tests/tokenizer/golden/*.jinja
  copy dataset '\x00\x40' "$work/pairs.tsv"
  copy dataset '\x01\x40' "$work/lines.jsonl"
  copy dataset '\x06\x40' "$root/README.md"
  copy probes '' "$work/probes.json" "$root"/models/mini/*probes*.json
  copy run_config '' "$work/run.toml"
  copy model_texts '' "$work/generation.json"
  copy model_texts 't' "$work/tokenizer_config.json"
  copy gpu_memory '' "$work/smi.txt"
  printf 'POST /v1/chat/completions?a=b HTTP/1.1\r\nHost: localhost:8080\r\nContent-Type: application/json\r\n%s\r\n\r\n' \
    "$(printf 'Authorization: Bearer 0123456789abcdef\r\nOrigin: https://b.lan\r\nContent-Length: 12')" > "$work/head.txt"
  copy request_head '' "$work/head.txt"
  printf '%s' '{"type":"object","properties":{"a":{"enum":["x",1]},"b":{"type":["string","null"],"maxLength":3}},' \
    '"required":["a"],"additionalProperties":false}' > "$work/schema1.json"
  printf '%s' '{"$ref":"#/$defs/t","$defs":{"t":{"anyOf":[{"type":"array","items":{"$ref":"#/$defs/t"},"maxItems":2},' \
    '{"type":"number"}]}}}' > "$work/schema2.json"
  copy json_schema '' "$work/schema1.json" "$work/schema2.json"
  printf '%s' '{"messages":[{"role":"user","content":"Hi"}],"stream":true,"stream_options":{"include_usage":true},' \
    '"logprobs":true,"top_logprobs":2,"stop":["x"],"temperature":1,"seed":3,"logit_bias":{"400":-1},"n":2}' > "$work/chat1.json"
  printf '%s' '{"messages":[{"role":"user","content":[{"type":"text","text":"Hi"}]}],"tools":[{"type":"function",' \
    '"function":{"name":"f","parameters":{"type":"object","properties":{"a":{"type":"integer"}}}}}],' \
    '"tool_choice":"required","response_format":{"type":"text"}}' > "$work/chat2.json"
  printf '%s' '{"prompt":[[300,301],[302]],"echo":true,"logprobs":2,"max_tokens":2,"stream":true}' > "$work/completion.json"
  printf '%s' '{"messages":[{"role":"system","content":"a"},{"role":"user","content":"b"}]}' > "$work/tokenize.json"
  printf '%s' '{"tokens":[300,3046]}' > "$work/detokenize.json"
  copy api '\x00' "$work/chat1.json" "$work/chat2.json"
  copy api '\x01' "$work/completion.json"
  copy api '\x02' "$work/tokenize.json"
  copy api '\x03' "$work/detokenize.json"
}

make_seeds
limit=-runs=$each
case $each in *s) limit=-max_total_time=${each%s} ;; esac

# One target; its line of the report goes to WORK/NAME.result.
fuzz_one() {
  local name=$1
  mkdir -p "$work/corpus/$name" "$seeds/$name"
  if "$fuzz/fuzz_$name" "$limit" -timeout=20 -rss_limit_mb=3000 -max_len=65536 \
      -print_final_stats=1 -artifact_prefix="$work/found/$name-" "$work/corpus/$name" \
      "$seeds/$name" > "$work/$name.log" 2>&1; then
    echo "$name: $(sed -n 's/^stat::number_of_executed_units: *//p' "$work/$name.log")" \
      "files, nothing found" > "$work/$name.result"
  else
    echo "$name: FOUND, see $work/$name.log" > "$work/$name.result"
  fi
  cat "$work/$name.result"
}

rm -f "$work"/*.result
for target in "$fuzz"/fuzz_*; do
  [ -f "$target" ] && [ -x "$target" ] || continue
  name=$(basename "$target")
  while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n || true; done
  fuzz_one "${name#fuzz_}" &
done
wait
awk '/nothing found/ { total += $2 } END { print total + 0, "mutated files in all" }' \
  "$work"/*.result
! grep -q FOUND "$work"/*.result
