# SPDX-License-Identifier: MIT
"""What the judges share: the program, the models it is judged on, packages that may be absent."""
import atexit
import importlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

NIBBLE = sys.argv.pop(1) if len(sys.argv) > 1 else "nibble"
ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden"
MINI = ROOT / "models" / "mini"
SHARED = pathlib.Path(os.environ.get("NIBBLE_SHARED", ROOT.parent / "shared"))
WEIGHTS = pathlib.Path(os.environ.get("NIBBLE_WEIGHTS", pathlib.Path.home() / ".cache/nibble/weights"))
# name of the golden file -> file of weights
REAL = {"smollm2-135m": "SmolLM2-135M-Instruct.Q4_1.gguf",
        "qwen2.5-coder-0.5b": "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"}


def need(*packages):
    """The modules, or the end of the test: 77 is "skipped"."""
    modules = []
    for name, pip in packages:
        try:
            modules.append(importlib.import_module(name))
        except ImportError:
            print(f"skipped: the Python package {pip} is not installed (pip install {pip})")
            sys.exit(77)
    return modules


def scratch():
    folder = pathlib.Path(tempfile.mkdtemp(prefix="nibble-judge-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def nibble(*args, code=0):
    command = [NIBBLE, "--quiet", *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != code:
        raise AssertionError(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def real_models():
    """(name, file, golden vectors) of the real models that are here."""
    found = []
    for name, file in REAL.items():
        golden = SHARED / "golden" / "real" / f"{name}.safetensors"
        if (WEIGHTS / file).exists() and golden.exists():
            found.append((name, WEIGHTS / file, golden))
        else:
            print(f"without {name}: {WEIGHTS / file} or {golden} is absent")
    return found


def loss_of(model, windows, *more):
    """nibble's mean loss of each window of token ids, [B, T] int64."""
    from safetensors.numpy import save_file
    folder = scratch()
    save_file({"windows": windows}, folder / "windows.safetensors")
    nibble("check", "--model", model, "--text", folder / "windows.safetensors", "--text-window",
           windows.shape[1], "--json", folder / "out.json", "--kv-dtype", "fp32", "--activations", "bf16",
           *more)
    with open(folder / "out.json") as f:
        return json.load(f)["checks"][0]


def logits_of(model, ids):
    """nibble's logits of token ids, [1, T, V], in fp32."""
    from safetensors.numpy import load_file, save_file
    folder = scratch()
    save_file({"input_ids": ids}, folder / "ids.safetensors")
    nibble("trace", "--model", model, "--input", folder / "ids.safetensors", "--out",
           folder / "trace.safetensors")
    return load_file(folder / "trace.safetensors")["logits"]


def far(a, b):
    """How far a lies from b, as a share of b."""
    import numpy as np
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    return np.linalg.norm(a - b) / np.linalg.norm(b)
