#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Fails when a source file includes a layer it may not depend on. Run by ctest as `layers`.

The table below is the architecture: docs/architecture.md explains it. Every layer may include
itself and core.
"""
import pathlib
import re
import sys

ALLOWED = {
    "core": [],
    "quant": [],
    "tokenizer": [],
    "data": ["tokenizer"],
    "mini": ["data", "tokenizer"],
    "formats": ["quant"],
    "backend": ["quant"],
    "backends/cpu": ["backend", "quant"],
    "backends/cuda": ["backend", "quant"],
    "model": ["backend", "quant", "formats"],
    "convert": ["model", "backend", "quant", "formats"],
    "inspect": ["convert", "model", "backend", "quant", "formats"],
    "train": ["convert", "model", "backend", "quant", "formats", "tokenizer", "data"],
    "generate": ["model", "backend", "quant", "tokenizer"],
    "eval": ["generate", "model", "backend", "quant", "tokenizer"],
    "measure": ["*"],
    "guard": [],
    "runlog": ["guard", "train", "backends/cuda", "backend"],
    "apps": ["*"],
}


def layer(path):
    return max((l for l in ALLOWED if path == l or path.startswith(l + "/")), key=len, default=None)


def violations(root):
    for f in sorted(root.rglob("*")):
        if f.suffix not in {".h", ".cuh", ".cpp", ".cu"}:
            continue
        me = layer(f.relative_to(root).parent.as_posix())
        if me is None:
            yield f"{f}: lies outside every layer"
            continue
        for n, line in enumerate(f.read_text().splitlines(), 1):
            m = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
            to = layer(str(pathlib.PurePosixPath(m[1]).parent)) if m else None
            if to and to not in (me, "core") and "*" not in ALLOWED[me] and to not in ALLOWED[me]:
                yield f"{f}:{n}: {me} may not include {to} ({m[1]})"
            if re.match(r"\s*#\s*include\s+<(cuda|cublas|cudnn)", line) and me != "backends/cuda":
                yield f"{f}:{n}: CUDA header outside backends/cuda"


if __name__ == "__main__":
    found = list(violations(pathlib.Path(sys.argv[1])))
    print("\n".join(found) if found else "layers: ok")
    sys.exit(1 if found else 0)
