#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Every call that can fail does so in turn: the n-th open, write, fsync, rename, mmap, thread start,
malloc, mkdir, unlink or lock of a command fails, for all n (or a sample of them), or memory runs out
at the n-th allocation. Afterwards every
file is old or new and sound, the exit code is a documented one, and the same command without the
fault ends well.

usage: run_faults.py NIBBLE LIBRARY SOURCE FOLDER [--sample N] [--malloc N] [--commands a,b]
                     [--kinds a,b] [--part I/K]
FOLDER is made and removed. --sample: at most N calls of each kind and command, evenly spread.
--malloc: at most N allocations (there are many). --part: the I-th of K parts, for several at once."""
import argparse
import errno
import shutil
import sys
from pathlib import Path

import sandbox

ERRORS = {"open": errno.EMFILE, "write": errno.ENOSPC, "fsync": errno.EIO, "rename": errno.EIO,
          "mmap": errno.ENOMEM, "clone": errno.EAGAIN, "malloc": errno.ENOMEM,
          "mkdir": errno.ENOSPC, "unlink": errno.EIO, "flock": errno.ENOLCK,
          "space": errno.ENOSPC, "memory": errno.ENOMEM}
ALLOCATIONS = {"malloc", "memory"}  # one that fails; from one on there is no more
OK, FILE, DEVICE = 0, 3, 4  # core/error.h
ALLOWED = {OK, FILE, DEVICE}


def spread(count, most):
    if count <= most:
        return range(1, count + 1)
    return sorted({1 + i * (count - 1) // max(1, most - 1) for i in range(most)})


def again(args):
    """The command once more after it failed: nothing is in its way but what it made itself."""
    more = [a for a in ("--resume", "--force") if args[0] == "train" and a not in args]
    if args[:1] == ["convert"] and "--force" not in args:
        more = ["--force"]
    return args + more


def try_fault(box, library, folder, name, kind, n):
    before, after, args = box.commands[name]
    box.fresh(name, folder)
    env = sandbox.environment(library, NIBBLE_FAULT=f"{kind}:{n}:{ERRORS[kind]}")
    done = box.run(folder, args, env)
    wrong = []
    if done.returncode not in ALLOWED:
        wrong.append(f"exit code {done.returncode}")
    if name == "prune":
        wrong += [p for p in sandbox.problems(folder, after=before, before=before)]
        if not list(folder.glob("runs/*/status.json")) and not list(
                folder.glob("runs/.trash/*/*/status.json")):
            wrong.append("the run is neither where it was nor in the trash")
    else:
        wrong += sandbox.problems(folder, before, after, all_new=done.returncode == OK)
    left = sandbox.leftovers(folder)
    if left and kind != "unlink":
        wrong.append(f"left behind: {left}")
    if done.returncode != OK and not wrong and name != "prune":
        once_more = box.run(folder, again(args))
        if once_more.returncode != OK:
            wrong.append(f"cannot go on: exit {once_more.returncode}: {once_more.stdout[-400:]}")
        wrong += sandbox.problems(folder, before, after, all_new=True)
    said = done.stdout.decode(errors="replace").strip().splitlines()
    return wrong, done.returncode, said[-1] if said else ""


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("nibble")
    parser.add_argument("library")
    parser.add_argument("source")
    parser.add_argument("folder")
    parser.add_argument("--sample", type=int, default=10**9)
    parser.add_argument("--malloc", type=int, default=40)
    parser.add_argument("--commands", default="")
    parser.add_argument("--kinds", default="")
    parser.add_argument("--part", default="1/1")
    o = parser.parse_args()
    root = Path(o.folder).resolve()
    shutil.rmtree(root, ignore_errors=True)
    box = sandbox.Sandbox(o.nibble, root, o.source)
    part, parts = map(int, o.part.split("/"))
    runs = failures = 0
    for name, (_, _, args) in box.commands.items():
        if o.commands and name not in o.commands.split(","):
            continue
        counts = root / "counts"
        folder = box.fresh(name, root / "work")
        box.run(folder, args, sandbox.environment(o.library, NIBBLE_FAULT_COUNTS=counts))
        found = {k: int(n) for k, n in (l.split() for l in counts.read_text().splitlines())}
        for kind, count in found.items():
            if o.kinds and kind not in o.kinds.split(","):
                continue
            codes = {}
            most = min(o.sample, o.malloc) if kind in ALLOCATIONS else o.sample
            for i, n in enumerate(spread(count, most)):
                if i % parts != part - 1:
                    continue
                wrong, code, said = try_fault(box, o.library, root / "work", name, kind, n)
                runs += 1
                codes[code] = codes.get(code, 0) + 1
                if wrong:
                    failures += 1
                    print(f"FAILED {name} {kind} {n} of {count}: {'; '.join(wrong)}\n    {said}",
                          flush=True)
            text = ", ".join(f"exit {c}: {k}" for c, k in sorted(codes.items()))
            print(f"{name} {kind}: {count} calls, {sum(codes.values())} tried ({text})", flush=True)
    print(f"{runs} faults, {failures} failures")
    shutil.rmtree(root, ignore_errors=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
