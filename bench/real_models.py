#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What four bits cost on real weights: the loss of the golden windows, by way of running a model.

usage: real_models.py NIBBLE GOLDENS MODEL... [--device cpu|cuda] [--threads N] [--json FILE]

MODEL is NAME=FILE.gguf; GOLDENS/NAME.safetensors holds text0, text1 (int64 [B, T] windows, English
and Traditional Chinese) and nll0, nll1, the losses of the dense weights in transformers (fp32).
Each row is one run of `nibble check --text`; the loss is the mean of all windows of a language, the
percentage the distance to transformers' figure.
"""
import argparse
import json
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

DENSE = ["--recipe", "bf16", "--activations", "bf16"]
NVFP4 = ["--recipe", "nvfp4"]
RULES = ["four-over-six", "absmax", "search", "torchao"]

ROWS = [("dense, fp32", DENSE + ["--compute-dtype", "fp32"], None),
        ("dense, bf16", DENSE + ["--compute-dtype", "bf16"], None)]
ROWS += [(f"NVFP4, {rule}",
          NVFP4 + ["--scale-rule", rule, "--activations", "bf16", "--compute-dtype", "fp32"], None)
         for rule in RULES]
ROWS += [
    ("NVFP4, head dense", NVFP4 + ["--head-recipe", "bf16", "--activations", "bf16",
                                   "--compute-dtype", "fp32"], None),
    ("NVFP4, bf16", NVFP4 + ["--activations", "bf16", "--compute-dtype", "bf16"], None),
    ("NVFP4, bf16, FP8 cache", NVFP4 + ["--activations", "bf16", "--compute-dtype", "bf16",
                                        "--kv-dtype", "fp8"], None),
    ("NVFP4, NVFP4 activations", NVFP4 + ["--activations", "nvfp4", "--compute-dtype", "bf16"],
     None),
    ("NVFP4, int8 activations", NVFP4 + ["--activations", "int8", "--compute-dtype", "fp32"],
     "cpu"),
    ("dense, bf16, FP8 cache", DENSE + ["--compute-dtype", "bf16", "--kv-dtype", "fp8"], None),
]


def expected_losses(path):
    with open(path, "rb") as f:
        (size,) = struct.unpack("<Q", f.read(8))
        header = json.loads(f.read(size))
        losses = []
        for name in ("nll0", "nll1"):
            begin, end = header[name]["data_offsets"]
            f.seek(8 + size + begin)
            values = struct.unpack(f"<{(end - begin) // 4}f", f.read(end - begin))
            losses.append(sum(values) / len(values))
    return losses


def measure(nibble, model, golden, flags, device, threads):
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "check.json"
        command = [nibble, "check", "--quiet", "--model", model, "--text", golden, "--json", out,
                   "--device", device, "--threads", str(threads)] + flags
        run = subprocess.run([str(c) for c in command], capture_output=True, text=True)
        if run.returncode != 0:
            return None, (run.stderr.strip() or run.stdout.strip()).splitlines()[-1][:120]
        checks = json.loads(out.read_text())["checks"]
    by_name = {c["file"].split(":")[-1]: c["loss"] for c in checks if "file" in c}
    return [by_name["text0"], by_name["text1"]], None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("nibble")
    parser.add_argument("goldens", type=Path)
    parser.add_argument("models", nargs="+", metavar="NAME=FILE")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--json", type=Path)
    o = parser.parse_args()
    results = []
    for spec in o.models:
        name, file = spec.split("=", 1)
        golden = o.goldens / f"{name}.safetensors"
        expected = expected_losses(golden)
        print(f"\n{name}: transformers, dense fp32: {expected[0]:.5f} {expected[1]:.5f}")
        print(f"{'':28} {'English':>9} {'':>8} {'Chinese':>9} {'':>8}")
        for title, flags, only in ROWS:
            device = only or o.device
            losses, problem = measure(o.nibble, file, golden, flags, device, o.threads)
            results.append({"model": name, "row": title, "device": device, "losses": losses,
                            "expected": expected, "problem": problem})
            if problem:
                print(f"{title:28} {problem}", flush=True)
                continue
            cells = "".join(f" {loss:9.5f} {(loss / e - 1) * 100:+7.2f}%"
                            for loss, e in zip(losses, expected))
            print(f"{title:28}{cells}", flush=True)
    if o.json:
        o.json.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
    return 1 if any(r["problem"] for r in results) else 0


if __name__ == "__main__":
    sys.exit(main())
