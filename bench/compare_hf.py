#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""nibble and Hugging Face transformers in turns on the same machine: medians and their ratio. A
machine's speed drifts, so single figures of two programs measured apart say little; the ratio in
one run does.

usage: compare_hf.py NIBBLE CONFIG.json [--rounds 3] [--samples 7] [--device cuda|cpu] [--folder DIR]
                     [--compute-dtype bf16] [--autocast]
                     [--work prefill:512,prefill:2048,decode:1:512,decode:32:512,train:1:96,...]

prefill:TOKENS and decode:SEQUENCES:CONTEXT are tokens a second of inference (nibble: NVFP4 weights;
transformers: bf16). train:BATCH:TOKENS is one step on every parameter (nibble: NVFP4 forward, bf16
master, 8-bit AdamW; transformers: bf16 AdamW, or fp32 on a CPU); add :recompute for activations that
are computed again. Training needs a model file, which is made once in DIR. --compute-dtype is
nibble's; --autocast also times PyTorch's own products in bf16 (training only), for information.
"""
import argparse
import os
import re
import statistics
import subprocess
import sys

here = os.path.dirname(os.path.abspath(__file__))
p = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1])
p.add_argument("nibble")
p.add_argument("config")
p.add_argument("--rounds", type=int, default=3)
p.add_argument("--samples", type=int, default=7, help="of each program in a round")
p.add_argument("--device", default="cuda")
p.add_argument("--threads", type=int, default=os.cpu_count())
p.add_argument("--folder", default="compare-hf")
p.add_argument("--compute-dtype", help="of nibble; its own choice if left out")
p.add_argument("--autocast", action="store_true", help="also time PyTorch with bf16 autocast")
p.add_argument("--work", default="prefill:512,prefill:2048,decode:1:512,decode:32:512,"
                                 "train:1:96,train:1:2048:recompute")
a = p.parse_args()
on_gpu = a.device == "cuda"


def run(command, pattern):
    done = subprocess.run(command, capture_output=True, text=True)
    found = re.search(pattern, done.stdout)
    if done.returncode != 0 or not found:
        sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return float(found.group(1))


def model_file():
    """A random NVFP4 model of the shape, for training."""
    path = os.path.join(a.folder, "model.dat")
    if not os.path.exists(path):
        os.makedirs(a.folder, exist_ok=True)
        dense = os.path.join(a.folder, "dense")
        if not os.path.exists(dense):
            subprocess.run([a.nibble, "init", "--config", a.config, "--out", dense], check=True)
        subprocess.run([a.nibble, "convert", dense, path, "--quant", "nvfp4", "--copy-config"], check=True)
    return path


def nibble(phase, numbers):
    common = ["--device", a.device, "--quiet"] + ([] if on_gpu else ["--threads", str(a.threads)])
    common += ["--compute-dtype", a.compute_dtype] if a.compute_dtype else []
    if phase == "train":
        batch, length, *recompute = numbers
        return run([a.nibble, "profile", "--model", model_file(), "--batch-size", batch, "--seq-len",
                    length, "--warmup", "2", "--repeat", str(a.samples), "--recompute",
                    "block" if recompute else "none"] + common, r"median ([\d.]+) ms")
    batch, context = ("1", numbers[0]) if phase == "prefill" else numbers
    return run([a.nibble, "bench", "--random-weights", "--config", a.config, "--brief", "--phase",
                phase, "--prompt-tokens", context, "--batch", batch, "--repeat", str(a.samples)] + common,
               r"([\d.]+)")


def transformers(phase, numbers, autocast=False):
    common = ["--device", a.device, "--threads", str(a.threads)]
    if phase == "train":
        batch, length, *recompute = numbers
        return run([sys.executable, os.path.join(here, "torch_train.py"), a.config, "--batch", batch,
                    "--seq", length, "--steps", str(a.samples), "--dtype",
                    "bfloat16" if on_gpu else "float32"] + (["--checkpoint"] if recompute else [])
                   + (["--autocast"] if autocast else []) + common,
                   r"median ([\d.]+) ms")
    return run([sys.executable, os.path.join(here, "torch_generate.py"), a.config, "--work",
                ":".join([phase] + numbers), "--samples", str(a.samples)] + common, r"median ([\d.]+) tok/s")


rows = []
for work in a.work.split(","):
    phase, *numbers = work.split(":")
    ours, theirs, cast = [], [], []
    for i in range(a.rounds):
        ours.append(nibble(phase, numbers))
        theirs.append(transformers(phase, numbers))
        if a.autocast and phase == "train":
            cast.append(transformers(phase, numbers, autocast=True))
        print(f"{work} round {i + 1}: {ours[-1]:.2f} / {theirs[-1]:.2f}"
              + (f" (autocast {cast[-1]:.2f})" if cast else ""), file=sys.stderr, flush=True)
    x, y = statistics.median(ours), statistics.median(theirs)
    rows.append((work, "ms a step" if phase == "train" else "tok/s", x, y, y / x if phase == "train" else x / y))
print(f"{'work':<22} {'':<10} {'nibble':>10} {'HF':>10} {'times as fast':>14}")
for work, unit, x, y, ratio in rows:
    print(f"{work:<22} {unit:<10} {x:>10.2f} {y:>10.2f} {ratio:>14.2f}")
