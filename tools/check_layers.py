#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Fails when a source file includes a layer it may not depend on. Run by ctest as `layers`.

The table below is the architecture: docs/architecture.md explains it. Every layer may include
itself and core; no two may need each other. A layer is a static library, and what it links (DEPS
in its CMakeLists.txt) must be allowed here and cover what it includes: CMake and the linker put up
with circles, this does not. A folder over 40 files wants to be two. JSON and TOML are parsed in one
place each, behind the limit of nesting.
"""
import pathlib
import re
import sys

ALLOWED = {
    "core": [],
    "comm": [],
    "quant": [],
    "optim": ["quant"],
    "tokenizer": [],
    "data": ["tokenizer"],
    "mini": ["data", "tokenizer"],
    "formats": ["quant"],
    "backend": ["optim", "quant"],
    "backends/cpu": ["backend", "optim", "quant"],
    "backends/cuda": ["backend", "optim", "quant"],
    "model": ["backend", "quant", "formats"],
    "convert": ["model", "backend", "quant", "formats"],
    "train": ["comm", "convert", "model", "backend", "optim", "quant", "formats", "tokenizer", "data"],
    "generate": ["model", "backend", "quant", "tokenizer"],
    "runtime": ["generate", "convert", "model", "backends/cpu", "backends/cuda", "backend", "quant", "formats",
                "tokenizer"],
    "inspect": ["runtime", "train", "convert", "model", "backend", "quant", "formats"],
    "eval": ["runtime", "inspect", "runlog", "generate", "convert", "model", "backend", "quant", "formats", "data",
             "tokenizer"],
    "measure": ["train", "generate", "model", "backends/cpu", "backend", "optim", "quant", "formats"],
    "guard": [],
    "runlog": ["guard", "backend"],
    "job": ["comm", "runtime", "eval", "measure", "runlog", "train", "generate", "convert", "model",
            "backends/cpu", "backend", "optim", "quant", "formats", "data", "tokenizer"],
    "library": ["job", "runtime", "generate", "convert", "model", "backend", "formats", "data",
                "tokenizer"],
    "grammar": ["tokenizer"],
    "serve/schedule": ["generate", "model", "backend", "tokenizer"],
    "serve/api": ["serve/schedule", "grammar", "runtime", "generate", "model", "backend", "tokenizer"],
    "serve/page": ["serve/api", "serve/schedule", "inspect", "runlog", "guard", "runtime", "generate", "model",
                   "backend", "formats", "data", "tokenizer"],
    "serve/http": ["serve/api"],
    "apps": ["*"],
}
MOST_FILES = 40
# Readers that know no limit of nesting, and where they may be called.
PARSERS = re.compile(r"\b(json|Json|OrderedJson|ordered_json|basic_json)::(sax_)?(parse|accept|from_\w+)\("
                     r"|\btoml::parse(_file)?\(")
# Outside backends/cuda: NCCL works on a stream of the runtime.
CUDA_MAY = {"comm/nccl_comm.cpp"}
PARSERS_MAY = {"core/json.h", "core/toml.h"}


def layer(path):
    return max((l for l in ALLOWED if path == l or path.startswith(l + "/")), key=len, default=None)


def may(me, to):
    return to in (me, "core") or "*" in ALLOWED[me] or to in ALLOWED[me]


def includes(root):
    """(layer, layer it includes, where) of every line that includes another file of ours."""
    for f in sorted(root.rglob("*")):
        if f.suffix not in {".h", ".cuh", ".cpp", ".cu"}:
            continue
        me = layer(f.relative_to(root).parent.as_posix())
        for n, line in enumerate(f.read_text().splitlines(), 1):
            m = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
            to = layer(str(pathlib.PurePosixPath(m[1]).parent)) if m else None
            if me and to:
                yield me, to, f"{f}:{n}: {me} may not include {to} ({m[1]})"


def linked(root):
    """Layer -> the layers in DEPS of its CMakeLists.txt."""
    names = {l.split("/")[-1]: l for l in ALLOWED}
    found = {}
    for l in ALLOWED:
        f = root / l / "CMakeLists.txt"
        if f.exists():
            text = f.read_text()
            deps = re.search(r"\bDEPS\b((?:\s+[a-z_]+)*)", text)
            found[l] = [names.get(d, d) for d in deps[1].split()] if deps else []
    return found


def circle(graph):
    """A path of layers that comes back to its first, or None."""
    done = set()

    def walk(l, path):
        if l in path:
            return path[path.index(l):] + [l]
        if l in done:
            return None
        for to in graph.get(l, []):
            found = walk(to, path + [l])
            if found:
                return found
        done.add(l)
        return None

    return next(filter(None, (walk(l, []) for l in graph)), None)


def violations(root):
    used = {}
    for me, to, complaint in includes(root):
        if not may(me, to):
            yield complaint
        if to != me:
            used.setdefault(me, set()).add(to)
    for f in sorted(root.rglob("*")):
        if f.is_dir():
            files = sum(1 for x in f.iterdir() if x.is_file())
            if files > MOST_FILES:
                yield f"{f}: {files} files, {MOST_FILES} at most: which folders are these?"
        if f.suffix not in {".h", ".cuh", ".cpp", ".cu"}:
            continue
        me = layer(f.relative_to(root).parent.as_posix())
        if me is None:
            yield f"{f}: lies outside every layer"
        for n, line in enumerate(f.read_text().splitlines(), 1):
            cuda = re.match(r"\s*#\s*include\s+<(cuda|cublas|cudnn)", line)
            if cuda and me != "backends/cuda" and f.relative_to(root).as_posix() not in CUDA_MAY:
                yield f"{f}:{n}: CUDA header outside backends/cuda"
            if PARSERS.search(line) and f.relative_to(root).as_posix() not in PARSERS_MAY:
                yield f"{f}:{n}: text becomes JSON and TOML in core/json.h and core/toml.h alone"
    deps = linked(root)
    for me, links in deps.items():
        for to in links:
            if not may(me, to):
                yield f"{root / me}/CMakeLists.txt: {me} may not link {to}"
        for to in sorted(used.get(me, set()) - set(links)):
            yield f"{root / me}/CMakeLists.txt: {me} includes {to} and does not link it (DEPS)"
    for name, graph in (("the table of layers", ALLOWED), ("DEPS", deps)):
        found = circle(graph)
        if found:
            yield f"{name}: a circle, {' -> '.join(found)}"


if __name__ == "__main__":
    found = list(violations(pathlib.Path(sys.argv[1])))
    print("\n".join(found) if found else "layers: ok")
    sys.exit(1 if found else 0)
