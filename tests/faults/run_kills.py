#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""SIGKILL at random moments of every command: convert, training (also with a rollback after a
collapse), its resumption, an export, pruning, splitting a data file. After each kill every file is
old or new and sound, and what was saved stays saved; the command goes on, is killed again a few
times, and when it is left alone it ends with the bytes of one that never was killed.

usage: run_kills.py NIBBLE SOURCE FOLDER [--kills N] [--seed N] [--commands a,b] [--part I/K]
--kills: in all, shared out among the commands. --part: the I-th of K parts of them."""
import argparse
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import crash_images
import run_faults
import sandbox

OK, KILLED = 0, -9
IN_A_ROW = 4  # at most: afterwards it is left alone and compared


def killed(box, folder, args, delay):
    """The exit code of a command that is killed after so many seconds, and what it said."""
    with open(folder / "said", "wb") as said:
        run = subprocess.Popen([box.nibble, *args, "--quiet"], cwd=folder, stdout=said,
                               stderr=subprocess.STDOUT)
        try:
            run.wait(delay)
        except subprocess.TimeoutExpired:
            run.kill()
        code = run.wait()
    text = (folder / "said").read_bytes()
    (folder / "said").unlink()
    return code, text


def next_try(name, args, folder):
    """How a user goes on. What is done by halves is not always to be told from somebody's file."""
    if name == "split":
        for half in ("train.tsv", "held.tsv"):
            (folder / half).unlink(missing_ok=True)
    return run_faults.again(args) if args[0] in ("train", "convert") else args


def newest_checkpoint(folder):
    """Its name and bytes. Older ones may be left from a kill between saving and tidying up."""
    files = sorted((folder / "saved").glob(crash_images.CHECKPOINTS))
    return (files[-1].name, files[-1].read_bytes()) if files else None


def wrong_now(name, box, folder, ended):
    before, after, _ = box.commands[name]
    if name == "prune":
        wrong = sandbox.problems(folder, after=before, before=before, ended=False)
        if not list(folder.glob("runs/*/status.json")) and not list(
                folder.glob("runs/.trash/*/*/status.json")):
            wrong.append("the run is neither where it was nor in the trash")
        return wrong
    # What a killed run says of itself is out of date; its free lock says so.
    wrong = sandbox.problems(folder, before, after, all_new=ended, ended=False,
                             attempts=name == "rollback" and not ended)
    if ended and newest_checkpoint(folder) != newest_checkpoint(after):
        wrong.append("the newest checkpoint is not that of a run left alone")
    return wrong


def series(box, folder, name, seconds, rng):
    """(kills, what is wrong) of one command, killed until it is left alone."""
    args = box.commands[name][2]
    end = sandbox.COLLAPSED if name == "rollback" else OK
    box.fresh(name, folder)
    kills, safe = 0, crash_images.saved_step(folder)
    for attempt in range(IN_A_ROW + 1):
        delay = rng.uniform(0, 1.05 * seconds) if attempt < IN_A_ROW else 300
        code, said = killed(box, folder, args, delay)
        if code not in (end, KILLED):
            return kills, [f"attempt {attempt + 1}: exit code {code}: {said[-400:]}"]
        kills += code == KILLED
        wrong = wrong_now(name, box, folder, ended=code == end)
        if name != "rollback" and crash_images.saved_step(folder) < safe:
            wrong.append(f"step {safe} was safe and is lost")
        safe = max(safe, crash_images.saved_step(folder))
        if wrong:
            return kills, wrong
        if code == end:
            break
        args = next_try(name, box.commands[name][2], folder)
    # Only who writes to a folder again looks for them there: not in the record of another run.
    left = [f for f in sandbox.leftovers(folder) if not f.startswith("runs/")]
    if left and name != "split":
        return kills, [f"left behind: {left}"]
    return kills, []


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("nibble")
    parser.add_argument("source")
    parser.add_argument("folder")
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--commands", default="")
    parser.add_argument("--part", default="1/1")
    o = parser.parse_args()
    root = Path(o.folder).resolve()
    shutil.rmtree(root, ignore_errors=True)
    box = sandbox.Sandbox(o.nibble, root, o.source)
    box.add_rollback()
    part, parts = map(int, o.part.split("/"))
    names = o.commands.split(",") if o.commands else list(box.commands)
    rng = random.Random(f"{o.seed} {part}")
    all_kills = failures = 0
    for name in names:
        folder = box.fresh(name, root / "work")
        begin = time.monotonic()
        box.run(folder, box.commands[name][2])
        seconds = time.monotonic() - begin
        kills = rounds = 0
        while kills * len(names) * parts < o.kills:
            rounds += 1
            n, wrong = series(box, folder, name, seconds, rng)
            kills += n
            if wrong:
                failures += 1
                print(f"FAILED {name}, round {rounds}: {'; '.join(wrong)}", flush=True)
        all_kills += kills
        print(f"{name}: killed {kills} times in {rounds} rounds", flush=True)
    print(f"{all_kills} kills, {failures} failures")
    shutil.rmtree(root, ignore_errors=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
