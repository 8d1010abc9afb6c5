#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Loss curves of two runs, step by step: exits 1 when a smoothed loss differs by more than a share.

usage: compare_curves.py RUN_FOLDER RUN_FOLDER [--within 0.005] [--window 10]
"""
import argparse
import json
import pathlib
import sys

p = argparse.ArgumentParser()
p.add_argument("runs", nargs=2, type=pathlib.Path)
p.add_argument("--within", type=float, default=0.005)
p.add_argument("--window", type=int, default=10)
a = p.parse_args()


def losses(folder):
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [r["loss"] for r in map(json.loads, lines) if "loss" in r and "step" in r]


def smoothed(x):
    return [sum(x[max(0, i - a.window + 1):i + 1]) / len(x[max(0, i - a.window + 1):i + 1])
            for i in range(len(x))]


one, two = map(losses, a.runs)
if len(one) != len(two) or not one:
    sys.exit(f"{len(one)} and {len(two)} steps")
single = max(abs(x / y - 1) for x, y in zip(one, two))
worst = max(abs(x / y - 1) for x, y in zip(smoothed(one), smoothed(two)))
for i in sorted({0, len(one) // 4, len(one) // 2, 3 * len(one) // 4, len(one) - 1}):
    print(f"step {i + 1:>5}: {one[i]:.5f} {two[i]:.5f} {one[i] / two[i] - 1:+.4%}")
print(f"{len(one)} steps: largest difference {worst:.4%} of the mean of {a.window}, "
      f"{single:.4%} of one step; allowed {a.within:.2%}")
sys.exit(worst > a.within)
