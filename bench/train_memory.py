#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Peak device memory of one training step in every memory mode, beside `nibble plan` and a table of
targets (GiB; at most 3 % above it, the plan within 3 % of what is measured).

usage: train_memory.py NIBBLE MODEL [--modes A,B,C,D] [--lengths 96,512,2048,8192]
"""
import argparse
import json
import re
import subprocess
import sys

TARGETS = {  # Qwen3-4B shape, batch 1
    "A": {96: 24.9, 512: 25.1, 2048: 25.6, 8192: 27.7},
    "B": {96: 18.5, 512: 18.7, 2048: 19.2, 8192: 21.3},
    "C": {96: 16.4, 512: 16.6, 2048: 17.1, 8192: 19.2},
    "D": {96: 4.9, 512: 5.1, 2048: 5.6, 8192: 7.7},
}

p = argparse.ArgumentParser()
p.add_argument("nibble")
p.add_argument("model")
p.add_argument("--modes", default="A,B,C,D")
p.add_argument("--lengths", default="96,512,2048,8192")
a = p.parse_args()


def run(*args):
    r = subprocess.run([a.nibble, *args], capture_output=True, text=True)
    if r.returncode != 0:
        sys.exit(f"{' '.join(args)}: exit {r.returncode}\n{r.stderr}")
    return r.stdout


print(f"{'mode':<5}{'T':>6}{'plan':>9}{'peak':>9}{'target':>9}{'plan/peak':>11}{'peak/target':>13}"
      f"{'host':>9}{'ms':>9}")
failed = 0
for mode in a.modes.split(","):
    for t in map(int, a.lengths.split(",")):
        # What the table was made for: blocks recomputed.
        same = ["--model", a.model, "--seq-len", str(t), "--memory-mode", mode,
                "--recompute", "block", "--device", "cuda"]
        plan = json.loads(run("plan", *same, "--json"))["plans"][0]
        out = run("profile", *same, "--warmup", "1", "--quiet")
        peak = float(re.search(r"peak ([\d.]+) GiB", out)[1])
        ms = float(re.search(r"elapsed=([\d.]+)ms", out)[1])
        planned = plan["total_bytes"] / 2**30
        target = TARGETS[mode][t]
        bad = abs(planned / peak - 1) > 0.03 or peak / target > 1.03
        failed += bad
        print(f"{mode:<5}{t:>6}{planned:>9.2f}{peak:>9.2f}{target:>9.1f}{planned / peak:>11.3f}"
              f"{peak / target:>13.3f}{plan['host_bytes'] / 2**30:>9.2f}{ms:>9.1f}"
              f"{'  FAILED' if bad else ''}", flush=True)
sys.exit(failed > 0)
