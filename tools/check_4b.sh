#!/bin/bash
# SPDX-License-Identifier: MIT
# init, convert and inspect at the size of a real model: time, peak memory, entries, bytes.
#   tools/check_4b.sh path/to/nibble path/to/config.json scratch-directory
# Needs about 12 GB in the scratch directory, where it makes and removes a folder of its own.
# With the config of Qwen3-4B the nvfp4 .dat must have 652 entries and 3,040,832,512 payload
# bytes; every step must stay under 1.5 GiB.
set -euo pipefail
nibble=$(realpath "$1")
config=$(realpath "$2")
mkdir -p "$3"
work=$(mktemp -d "$3/nibble-check.XXXXXX")
trap 'rm -rf "$work"' EXIT

# Runs a command and prints its wall time and the peak resident set of that process.
measured() {
  python3 - "$@" <<'PY'
import resource, subprocess, sys, time
start = time.time()
code = subprocess.run(sys.argv[1:]).returncode
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
print(f"-- {sys.argv[2]}: exit {code}, {time.time() - start:.1f} s, peak {peak / 2**30:.3f} GiB")
sys.exit(code or (1 if peak > 1.5 * 2**30 else 0))
PY
}

measured "$nibble" init --config "$config" --out "$work/hf" --seed 1
measured "$nibble" convert "$work/hf" "$work/nvfp4.dat" --quant nvfp4
rm -f "$work/inspect.txt"
measured "$nibble" inspect "$work/nvfp4.dat" --config "$config" --against "$work/hf" > "$work/inspect.txt"
tail -n 4 "$work/inspect.txt"
measured "$nibble" inspect "$work/nvfp4.dat" > "$work/inspect.txt"
tail -n 4 "$work/inspect.txt"
rm -rf "$work/hf"

# There and back: expanded to a directory and quantised again, every NVFP4 value is the same.
measured "$nibble" convert "$work/nvfp4.dat" "$work/back" --quant none --config "$config"
rm "$work/nvfp4.dat"
measured "$nibble" convert "$work/back" "$work/fp16.dat" --quant none
measured "$nibble" inspect "$work/fp16.dat" --config "$config" --against "$work/back" > "$work/inspect.txt"
tail -n 2 "$work/inspect.txt"
