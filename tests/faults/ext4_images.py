#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Power cuts on a real file system: the calls of a command that change files are recorded as for
crash_images.py and done again, one after the other, on an ext4 image behind a loop device. After
every n-th of them the image is copied as it lies on the "disk" - what ext4 has not sent there yet is
lost - and the copy is mounted, so that ext4 recovers from its journal. In each copy every file is old
or new and sound, a step that was saved stays saved, and from a sample of them the command is run
again to its end.

Needs root, loop devices and mkfs.ext4; without them it says so and exits with 77 (skipped).
usage: ext4_images.py NIBBLE LIBRARY SOURCE FOLDER [--every N] [--again N] [--commands a,b]"""
import argparse
import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path

import crash_images
import run_faults
import sandbox

SKIPPED = 77
# Room for what a command asks for besides what a cut run has left; the image is a sparse file.
MEBIBYTES = 112
RENAME_EXCHANGE = 2
LIBC = ctypes.CDLL(None, use_errno=True)


def mount(image, at):
    at.mkdir(exist_ok=True)
    subprocess.run(["mount", "-o", "loop", image, at], check=True, stderr=subprocess.PIPE)


def unmount(at):
    subprocess.run(["umount", at], check=True)


def why_not(root):
    """Why images cannot be made and mounted here; nothing where they can."""
    if os.geteuid() != 0:
        return "mounting needs root"
    if not shutil.which("mkfs.ext4") or not shutil.which("mount"):
        return "mkfs.ext4 or mount is not installed"
    try:
        mount(new_image(root / "try.img", 1), root / "try")
    except subprocess.CalledProcessError as e:
        return f"a loop device cannot be mounted: {e.stderr.decode().strip()}"
    unmount(root / "try")
    return None


def new_image(path, mebibytes):
    path.unlink(missing_ok=True)
    with open(path, "wb") as f:
        f.truncate(mebibytes << 20)
    subprocess.run(["mkfs.ext4", "-q", "-F", path], check=True)
    return path


class Replay:
    """The recorded changes of `work`, done again below `to` by the system's own calls."""

    def __init__(self, work, to):
        self.work, self.to, self.open = str(work), str(to), {}
        for p in Path(work).rglob("*"):
            if p.is_file():
                same = Path(to) / p.relative_to(work)
                self.open[str(p.stat().st_ino)] = os.open(same, os.O_RDWR)

    def path(self, name):
        """Where a name of the recorded run lies here; nothing where it lies elsewhere."""
        whole = os.path.normpath(os.path.join(self.work, name))
        if whole != self.work and not whole.startswith(self.work + "/"):
            return None
        return self.to + whole[len(self.work):]

    def apply(self, op, a, b, data):
        if op in ("write", "truncate", "fsync"):
            fd = self.open.get(a)
            if fd is None:
                return
            if op == "write":
                done = os.pwrite(fd, data, int(b))
                assert done == len(data)
            elif op == "truncate":
                os.ftruncate(fd, int(b))
            else:
                os.fsync(fd)
            return
        path = self.path(a)
        if path is None:
            return
        if op == "create":
            fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
            known = self.open.get(b)
            if known is not None:
                os.close(known)
            self.open[b] = fd
        elif op == "fsyncdir":
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
            os.fsync(fd)
            os.close(fd)
        elif op == "mkdir":
            os.mkdir(path)
        elif op == "unlink":
            (os.rmdir if os.path.isdir(path) else os.unlink)(path)
        elif op == "rename":
            os.rename(path, self.path(b))
        elif op == "exchange":
            if LIBC.renameat2(-100, path.encode(), -100, self.path(b).encode(), RENAME_EXCHANGE):
                raise OSError(ctypes.get_errno(), "renameat2", path)
        else:
            raise SystemExit(f"a change of an unknown kind: {op}")

    def close(self):
        for fd in self.open.values():
            os.close(fd)


def look(box, root, before, after, args, safe, last, go_on):
    """What is wrong in the copy of the image, after ext4 has recovered it."""
    at = root / "crashed"
    mount(root / "crashed.img", at)
    try:
        folder = at / "work"
        # Names of checkpoints are looked up beside the folder of a run: those of the sandbox.
        seen = root / "image"
        shutil.rmtree(seen, ignore_errors=True)
        shutil.copytree(folder, seen, symlinks=True)
        wrong = sandbox.problems(seen, before, after, all_new=last, ended=last)
        if crash_images.saved_step(seen) < safe:
            wrong.append(f"step {safe} was safe and is lost")
        if not wrong and go_on:
            shutil.rmtree(folder / "work", ignore_errors=True)
            once_more = box.run(folder, run_faults.again(args))
            if once_more.returncode != 0:
                wrong.append(f"cannot go on: {once_more.stdout[-300:]}")
            shutil.rmtree(seen)
            shutil.copytree(folder, seen, symlinks=True)
            wrong += sandbox.problems(seen, before, after, all_new=True, ended=False)
        return wrong
    finally:
        unmount(at)


def check(box, library, root, name, o):
    before, after, args = box.commands[name]
    work, record, disk = root / "work", root / "record", root / "disk"
    box.fresh(name, work)
    record.unlink(missing_ok=True)
    model = crash_images.Disk(work)  # knows which steps are safe
    mount(new_image(root / "disk.img", MEBIBYTES), disk)
    images = failures = 0
    try:
        shutil.copytree(work, disk / "work", symlinks=True)
        os.sync()
        replay = Replay(work, disk / "work")
        done = box.run(work, args, sandbox.environment(library, NIBBLE_RECORD=record))
        if done.returncode != 0:
            raise SystemExit(f"{name}: {done.stdout.decode()}")
        changes, safe = list(crash_images.operations(record)), -1
        for n, change in enumerate(changes, 1):
            model.apply(*change)
            replay.apply(*change)
            safe = max(safe, model.safe_step())
            last = n == len(changes)
            if n % o.every != 0 and not last:
                continue
            # A file of its own each time: mount takes a loop device that somebody else's view of the
            # mounts still holds for the same file, and with it what was cached of the one before.
            crashed = root / "crashed.img"
            crashed.unlink(missing_ok=True)
            subprocess.run(["cp", "--sparse=always", root / "disk.img", crashed], check=True)
            images += 1
            # The last call has returned: what the run promised is to be there.
            wrong = look(box, root, before, after, args, safe, last, images % o.again == 0)
            if wrong:
                failures += 1
                print(f"FAILED {name}, after change {n} of {len(changes)} ({change[0]} {change[1]}"
                      f" {change[2]}): {'; '.join(wrong)}", flush=True)
        replay.close()
    finally:
        unmount(disk)
    print(f"{name}: {len(changes)} changes, {images} images of ext4, {failures} failures", flush=True)
    return images, failures


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("nibble", "library", "source", "folder"):
        parser.add_argument(name)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--again", type=int, default=20)
    parser.add_argument("--commands", default="convert,convert-directory,train,resume,export,split")
    o = parser.parse_args()
    root = Path(o.folder).resolve()
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    reason = why_not(root)
    if reason:
        print(f"Skipped: {reason}")
        shutil.rmtree(root)
        return SKIPPED
    box = sandbox.Sandbox(o.nibble, root, o.source)
    counts = [check(box, o.library, root, name, o) for name in o.commands.split(",")]
    images, failures = (sum(c) for c in zip(*counts))
    print(f"{images} images of ext4, {failures} failures")
    shutil.rmtree(root, ignore_errors=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
