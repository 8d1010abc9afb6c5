#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Power cuts: the calls of a command that change files are recorded (faulty_calls.cpp) and replayed
up to every n-th onto a model of a file system that keeps nothing it was not told to flush. Each
point gives several images:
  strict    only what was flushed: names by fsync of their directory, bytes by fsync of the file
  names     every name, but only the bytes that were flushed (the empty files of a crash)
  all       everything, as if the program had been killed
  random    each directory and each file by itself in one of the states above
In each, every file is old or new and sound, and training that was saved once is never lost. From
some of them the command is run again, and must end as if nothing had happened.

usage: crash_images.py NIBBLE LIBRARY SOURCE FOLDER [--every N] [--again N] [--commands a,b]
                       [--part I/K]
--every: of the points only each N-th. --again: runs the command from each N-th image. --part: the
I-th of K parts of the points, for several at once."""
import argparse
import fnmatch
import random
import shutil
import sys
from pathlib import Path

import run_faults
import sandbox


CHECKPOINTS = "checkpoint-*.safetensors"


def step_of(name):
    return int(name[11:19])


class File:
    def __init__(self, data=b""):
        self.now, self.flushed = bytearray(data), bytes(data)

    def state(self, rule, rng):
        if rule == "random":
            rule = rng.choice(["all", "names"])
        return bytes(self.now) if rule == "all" else self.flushed


class Folder:
    def __init__(self):
        self.now, self.flushed = {}, {}

    def state(self, rule, rng):
        if rule == "random":
            rule = rng.choice(["all", "strict"])
        return self.flushed if rule == "strict" else self.now


class Disk:
    """The tree of a folder, as it is and as it would be after a power cut."""

    def __init__(self, folder):
        self.base, self.inodes = str(folder), {}
        self.root = self.read(Path(folder))

    def read(self, folder):
        node = Folder()
        for p in folder.iterdir():
            node.now[p.name] = self.read(p) if p.is_dir() else File(p.read_bytes())
            if p.is_file():
                self.inodes[str(p.stat().st_ino)] = node.now[p.name]
        node.flushed = dict(node.now)
        return node

    def parts(self, path):
        path = str(Path(self.base) / path) if not path.startswith("/") else path
        if path != self.base and not path.startswith(self.base + "/"):
            return None  # of no interest: elsewhere
        return [p for p in path[len(self.base):].split("/") if p not in ("", ".")]

    def folder(self, parts):
        node = self.root
        for p in parts:
            node = node.now[p]
        return node

    def apply(self, op, a, b, data):
        if op in ("write", "truncate", "fsync"):
            file = self.inodes.get(a)
            if file is None:
                return
            if op == "fsync":
                file.flushed = bytes(file.now)
            elif op == "truncate":
                del file.now[int(b):]
                file.now.extend(b"\0" * (int(b) - len(file.now)))
            else:
                file.now.extend(b"\0" * (int(b) - len(file.now)))
                file.now[int(b):int(b) + len(data)] = data
            return
        at = self.parts(a)
        if at is None:
            return
        if op == "fsyncdir":
            node = self.folder(at)
            node.flushed = dict(node.now)
            return
        parent, name = self.folder(at[:-1]), at[-1]
        if op == "create":
            known = parent.now.get(name)
            if known is None or self.inodes.get(b) is not known:
                parent.now[name] = self.inodes[b] = File()
        elif op == "mkdir":
            parent.now[name] = Folder()
        elif op == "unlink":
            del parent.now[name]
        else:
            to = self.parts(b)
            other = self.folder(to[:-1])
            mine, theirs = parent.now.pop(name), other.now.get(to[-1])
            other.now[to[-1]] = mine
            if op == "exchange":
                parent.now[name] = theirs

    def safe_step(self):
        """saved_step() of what was flushed."""
        node = self.root.flushed
        trained = node.get("trained")
        if trained and "model.safetensors" in trained.flushed:
            return 10**9
        saved = node.get("saved")
        return max((step_of(n) for n in (saved.flushed if saved else ())
                    if fnmatch.fnmatchcase(n, CHECKPOINTS)), default=-1)

    def write(self, to, rule, rng):
        shutil.rmtree(to, ignore_errors=True)

        def put(node, path):
            path.mkdir()
            for name, child in node.state(rule, rng).items():
                if isinstance(child, Folder):
                    put(child, path / name)
                else:
                    (path / name).write_bytes(child.state(rule, rng))
        put(self.root, Path(to))


def operations(record):
    data, at = Path(record).read_bytes(), 0
    while at < len(data):
        fields = []
        for _ in range(4):
            end = data.index(b"\0", at)
            fields.append(data[at:end].decode())
            at = end + 1
        size = int(fields[3])
        yield fields[0], fields[1], fields[2], data[at:at + size]
        at += size


def saved_step(folder):
    """How far a training is safe: its newest checkpoint, or its output."""
    if (folder / "trained" / "model.safetensors").exists():
        return 10**9
    return max((step_of(f.name) for f in folder.glob(f"saved/{CHECKPOINTS}")), default=-1)


def check(box, library, root, name, o):
    before, after, args = box.commands[name]
    folder, record, image = root / "work", root / "record", root / "image"
    box.fresh(name, folder)
    record.unlink(missing_ok=True)
    disk = Disk(folder)
    done = box.run(folder, args, sandbox.environment(library, NIBBLE_RECORD=record))
    if done.returncode != 0:
        raise SystemExit(f"{name}: {done.stdout.decode()}")
    changes = list(operations(record))
    part, parts = map(int, o.part.split("/"))
    safe, images, failures = -1, 0, 0
    for n, change in enumerate(changes, 1):
        disk.apply(*change)
        safe = max(safe, disk.safe_step())
        if n % o.every != 0 and n != len(changes) or n // o.every % parts != part - 1:
            continue
        rng = random.Random(n)
        for rule in ("strict", "names", "all", "random"):
            disk.write(image, rule, rng)
            images += 1
            last = n == len(changes)
            wrong = sandbox.problems(image, before, after, all_new=last, ended=last)
            if saved_step(image) < safe:
                wrong.append(f"step {safe} was safe and is lost")
            if not wrong and images % o.again == 0:
                shutil.rmtree(image / "work", ignore_errors=True)
                once_more = box.run(image, run_faults.again(args))
                if once_more.returncode != 0:
                    wrong.append(f"cannot go on: {once_more.stdout[-300:]}")
                wrong += sandbox.problems(image, before, after, all_new=True, ended=False)
            if wrong:
                failures += 1
                print(f"FAILED {name}, after change {n} of {len(changes)} ({change[0]} {change[1]}"
                      f" {change[2]}), {rule}: {'; '.join(wrong)}", flush=True)
    print(f"{name}: {len(changes)} changes, {images} images, {failures} failures", flush=True)
    return images, failures


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("nibble")
    parser.add_argument("library")
    parser.add_argument("source")
    parser.add_argument("folder")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--again", type=int, default=50)
    parser.add_argument("--part", default="1/1")
    parser.add_argument("--commands", default="convert,convert-directory,train,resume,export")
    o = parser.parse_args()
    root = Path(o.folder).resolve()
    shutil.rmtree(root, ignore_errors=True)
    box = sandbox.Sandbox(o.nibble, root, o.source)
    counts = [check(box, o.library, root, name, o) for name in o.commands.split(",")]
    images, failures = (sum(c) for c in zip(*counts))
    print(f"{images} images, {failures} failures")
    shutil.rmtree(root, ignore_errors=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
